"""The origin of a result: its source, the packages, and the machine."""

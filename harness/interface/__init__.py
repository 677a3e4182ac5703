"""The Python interface: the functions behind the commands, with keyword arguments named like their options."""

"""How trials run: each in a process of its own under a supervisor, none able to harm another, nothing lost."""

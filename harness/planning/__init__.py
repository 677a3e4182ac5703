"""Suite file -> validated suite -> plan: a tuple of frozen trials."""

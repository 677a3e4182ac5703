"""Processes that run third-party code, and what keeps them from harming the process that started them."""

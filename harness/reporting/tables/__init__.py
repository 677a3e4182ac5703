"""Render tables in Markdown and LaTeX."""

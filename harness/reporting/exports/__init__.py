"""Formats in which other tools read a run: one file per format, of the same name.

Each defines `write(results, folder, selection) -> list[Path]`, which writes below the folder of a run, replaces the
files of an earlier export, and returns its files or folders; it raises a UserError if a library that the format needs
is missing, or if something is selected and it has no tables.
"""

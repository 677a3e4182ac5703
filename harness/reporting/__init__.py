"""Records -> results.csv, tables and figures: pure functions of what is on disk."""

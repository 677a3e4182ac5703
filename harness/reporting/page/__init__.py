"""Write index.html."""

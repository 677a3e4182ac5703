"""Find, download and verify source files, and cache the arrays prepared from them."""

"""One capability reporter a virt driver, and what it knows of its hosts."""

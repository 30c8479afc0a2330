"""What was done with the library: one file a question. `python -m studies` runs them."""

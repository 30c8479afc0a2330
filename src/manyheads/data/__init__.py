"""Where token sequences and their labels come from."""

"""Attacks on the product by chance: kills, damaged files, bad input, long use. `make torture` runs them."""

"""Turns stored results into figures and one page. Computes nothing and needs no JAX."""

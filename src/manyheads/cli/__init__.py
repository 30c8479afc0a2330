"""The command line: one module per verb, each a shell over one call of the library."""

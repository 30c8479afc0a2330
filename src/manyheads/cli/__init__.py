"""The command line: one module per verb, each a thin wrapper over one call of the library."""

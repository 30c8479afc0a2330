"""Many runs: the grid, the engine that works through it, the store that keeps the results."""

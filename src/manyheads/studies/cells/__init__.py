"""What the studies compute: cell functions of their sweeps. JAX lives here, not in the studies."""

"""How parameters move: starts, gradient descent, and the trajectory that a run leaves behind."""

"""Functions of parameters: the attention model, its losses, its gradient. Nothing is learned here."""

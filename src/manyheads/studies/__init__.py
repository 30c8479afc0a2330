"""Questions asked of the theory, a file or a folder each, found by being here; `kit` is what they are made of."""

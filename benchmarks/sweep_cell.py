"""A cell function that does nothing, so that all of its time is the engine's."""


def nothing(cell):
    return {"value": cell.seed}

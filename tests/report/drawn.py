"""A figure with every kind of panel, for both drawings."""

from manyheads.studies.kit.figure import Axis, Figure, MapPanel, Panel, bars, line, rule

STEP, LOSS = Axis("step", "steps", log=True), Axis("train loss", "nats", log=True)


def example() -> Figure:
    """One panel of every kind."""
    x = [1, 10, 100]
    curves = Panel(
        "Curves",
        STEP,
        LOSS,
        (
            line("zero", "zero", x, [1, 0.5, 0.1], [0.9, 0.4, 0.05], [1.1, 0.6, 0.2]),
            rule("ours", "bound", 0.7),
        ),
    )
    kinds = Axis("data", "kind")
    upright = Panel(
        "Bars", kinds, LOSS, (bars("ours", "ours", ["A", "B"], [1.0, 20.0], [0.5, 10], [2, 30]),)
    )
    lying = Panel(
        "Lying", kinds, LOSS, (bars("printed", "printed", ["A", "B"], [1.0, 20.0]),), sideways=True
    )
    return Figure("every-kind", "Every kind", "caption", (curves, upright, lying))


def maps() -> Figure:
    position = Axis("token", "position")
    panel = MapPanel(
        "map", position, position, Axis("attention", "share"), ((0.2, 0.8), (0.5, 0.5))
    )
    return Figure("maps", "Maps", "caption", (panel, panel), columns=2)

"""Where token sequences and their labels come from."""

from manyheads._names import public

PUBLIC = {
    "dataset": ("Dataset",),
    "mixture": ("TokenizedMixture",),
    "planted": ("Planted", "RandomLabels"),
    "real": ("digits", "Digits"),
}

__getattr__, __dir__ = public(__name__, PUBLIC)

"""Functions of parameters: the attention model, its losses, its gradient. Nothing is learned here."""

from manyheads._names import public

PUBLIC = {
    "attention": ("MultiHead", "Heads", "Factored"),
    "variants": ("Frozen", "LowRank"),
    "autodiff": ("ModuleModel",),
    "protocol": ("Model", "Objective"),
    "layers": ("from_torch", "from_safetensors", "to_torch"),
    "loss": ("Loss",),
}

__getattr__, __dir__ = public(__name__, PUBLIC)

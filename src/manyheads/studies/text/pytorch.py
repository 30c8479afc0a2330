"""The attention that people use: PyTorch's own layer, mini-batches and Adam. Nothing is computed without PyTorch."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np

from manyheads.data.dataset import Dataset

STEP_SIZES = (1e-3, 3e-3, 1e-2)
BATCH = 128


def torch_scores(
    train: Dataset, validation: Dataset, test: Dataset, num_heads: int, *, epochs: int, seed: int
) -> np.ndarray | None:
    """Scores of `nn.MultiheadAttention` of the last token and a linear readout on the test data.

    The step size and the epoch are those of least validation loss. None where PyTorch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    torch: Any = importlib.import_module("torch")
    nn = torch.nn

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(train.dim, num_heads, batch_first=True)
            self.readout = nn.Linear(train.dim, 1)

        def forward(self, tokens: Any, mask: Any) -> Any:
            last = mask.sum(dim=1) - 1
            query = tokens[torch.arange(len(tokens)), last][:, None]
            mixed, _ = self.attention(
                query, tokens, tokens, key_padding_mask=~mask, need_weights=False
            )
            return self.readout(mixed[:, 0])[:, 0]

    def tensors(data: Dataset) -> tuple[Any, Any, Any]:
        return (
            torch.tensor(data.tokens, dtype=torch.float32),
            torch.tensor(data.mask),
            torch.tensor(data.labels),
        )

    def loss(scores: Any, labels: Any) -> Any:
        return nn.functional.softplus(-labels * scores).mean()

    tokens, mask, labels = tensors(train)
    held, unseen = tensors(validation), tensors(test)
    least, found = np.inf, np.zeros(len(test))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several cells run at once, and the work is small
    with torch.random.fork_rng(devices=[]):
        for step_size in STEP_SIZES:
            torch.manual_seed(seed)
            model = Classifier()
            optimizer = torch.optim.Adam(model.parameters(), lr=step_size)
            for _ in range(epochs):
                for places in torch.randperm(len(labels)).split(BATCH):
                    optimizer.zero_grad()
                    loss(model(tokens[places], mask[places]), labels[places]).backward()
                    optimizer.step()
                with torch.no_grad():
                    now = float(loss(model(*held[:2]), held[2]))
                    if now < least:
                        least, found = now, model(*unseen[:2]).numpy().astype(float)
    torch.set_num_threads(threads)
    return found

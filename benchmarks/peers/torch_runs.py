"""Leave-one-out training runs in a PyTorch loop; answers JSON lines on standard input."""

import numpy as np
import torch
from answering import serve, timed

torch.set_num_threads(1)

STATE = {}


def run(i):
    """Gradient descent with weight zero for example i (none for i < 0); the final parameters."""
    X, y, W, U, step_size, num_steps = STATE["case"]
    W, U = W.clone().requires_grad_(), U.clone().requires_grad_()
    weight = torch.full_like(y, 1 / len(y))
    if i >= 0:
        weight[i] = 0
    for _ in range(num_steps):
        S = torch.einsum("ntd,hde->nhte", X, W) @ X.transpose(1, 2)[:, None]
        scores = ((torch.softmax(S, dim=-1) @ X[:, None]) * U).sum(dim=(1, 2, 3)) / W.shape[
            0
        ] ** 0.5
        loss = (weight * torch.nn.functional.softplus(-y * scores)).sum()
        gW, gU = torch.autograd.grad(loss, (W, U))
        with torch.no_grad():
            W -= step_size * gW
            U -= step_size * gU
    return W.detach(), U.detach()


def distance(a, b):
    return float(torch.sqrt(sum(((x - y) ** 2).sum() for x, y in zip(a, b, strict=True))))


def answer(request):
    if request["action"] == "versions":
        return {"versions": {"torch": torch.__version__}}
    if request["action"] == "load":
        with np.load(request["file"], allow_pickle=False) as file:
            arrays = [
                torch.from_numpy(file[name])
                for name in ("tokens", "labels", "key_query", "readout")
            ]
        STATE["case"] = (*arrays, request["step_size"], request["num_steps"])
        return {}
    if request["action"] == "check":
        reference = run(-1)
        np.savez(
            request["file"],
            distance=np.array([distance(run(i), reference) for i in request["indices"]]),
        )
        return {}
    runs = timed(lambda: [run(i) for i in request["indices"]], request["repeats"])
    return {"seconds": runs["seconds"] / len(request["indices"])}


serve(answer)

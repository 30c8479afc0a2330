"""One loss-and-gradient of the multi-head model in PyTorch, eager and compiled; answers JSON lines on standard input."""

import numpy as np
import torch
from answering import serve, timed

torch.set_num_threads(1)
torch.set_float32_matmul_precision("highest")


def loss_of(X, y, W, U):
    H = W.shape[0]
    S = torch.einsum("ntd,hde->nhte", X, W) @ X.transpose(1, 2)[:, None]
    A = torch.softmax(S, dim=-1)
    scores = ((A @ X[:, None]) * U).sum(dim=(1, 2, 3)) / H**0.5
    return torch.nn.functional.softplus(-y * scores).mean()


def step(value, arrays):
    X, y, W, U = arrays
    W.grad = U.grad = None
    loss = value(X, y, W, U)
    loss.backward()
    return loss.detach(), W.grad, U.grad


STATE = {}


def answer(request):
    if request["action"] == "versions":
        return {"versions": {"torch": torch.__version__}}
    if request["action"] == "load":
        with np.load(request["file"], allow_pickle=False) as file:
            X, y, W, U = (
                torch.from_numpy(file[name])
                for name in ("tokens", "labels", "key_query", "readout")
            )
        STATE["arrays"] = (X, y, W.requires_grad_(), U.requires_grad_())
        torch._dynamo.reset()
        STATE["eager"], STATE["compiled"] = loss_of, torch.compile(loss_of, dynamic=False)
        return {}
    value = STATE[request["variant"]]
    if request["action"] == "check":
        loss, dW, dU = step(value, STATE["arrays"])
        np.savez(request["file"], loss=loss.numpy(), key_query=dW.numpy(), readout=dU.numpy())
        return {}
    return timed(lambda: step(value, STATE["arrays"]), request["repeats"])


serve(answer)

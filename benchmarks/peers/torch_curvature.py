"""Hessian-vector products and extreme eigenvalues by curvlinops; answers JSON lines on standard input."""

import curvlinops
import numpy as np
import torch
from answering import serve, timed
from scipy.sparse.linalg import LinearOperator, eigsh

torch.set_num_threads(1)


class Heads(torch.nn.Module):
    def __init__(self, W, U):
        super().__init__()
        self.W, self.U = torch.nn.Parameter(W), torch.nn.Parameter(U)

    def forward(self, X):
        S = torch.einsum("ntd,hde->nhte", X, self.W) @ X.transpose(1, 2)[:, None]
        A = torch.softmax(S, dim=-1)
        return ((A @ X[:, None]) * self.U).sum(dim=(1, 2, 3)) / self.W.shape[0] ** 0.5


class MeanLogistic(torch.nn.Module):
    reduction = "mean"  # what curvlinops asks a loss for

    def forward(self, scores, labels):
        return torch.nn.functional.softplus(-labels * scores).mean()


STATE = {}


def extremes(operator, start, tolerance):
    """The same two ARPACK calls that manyheads makes: the largest, then the smallest of the operator moved down by it."""
    size = operator.shape[0]
    top = float(eigsh(operator, k=1, which="LA", tol=tolerance, ncv=40, v0=start)[0][0])
    moved = LinearOperator(
        (size, size), matvec=lambda v: operator @ v - abs(top) * v, dtype=np.float64
    )
    low = float(eigsh(moved, k=1, which="SA", tol=tolerance, ncv=40, v0=start)[0][0]) + abs(top)
    return [low, top]


def answer(request):
    if request["action"] == "versions":
        from importlib.metadata import version

        return {
            "versions": {
                "torch": torch.__version__,
                "curvlinops": version("curvlinops-for-pytorch"),
            }
        }
    if request["action"] == "load":
        with np.load(request["file"], allow_pickle=False) as file:
            X, y, W, U, vector = (
                torch.from_numpy(file[k])
                for k in ("tokens", "labels", "key_query", "readout", "vector")
            )
        model = Heads(W, U)
        parameters = [model.W, model.U]
        operator = curvlinops.HessianLinearOperator(
            model, MeanLogistic(), parameters, [(X, y)], check_deterministic=False
        )
        STATE.update(
            operator=operator,
            vector=vector,
            scipy=operator.to_scipy(),
            tolerance=float(request["tolerance"]),
        )
        return {}
    work = {
        "product": lambda: STATE["operator"] @ STATE["vector"],
        "eigenvalues": lambda: extremes(
            STATE["scipy"], STATE["vector"].numpy(), STATE["tolerance"]
        ),
    }[request["variant"]]
    if request["action"] == "check":
        result = work()
        np.savez(
            request["file"],
            result=result.detach().numpy() if torch.is_tensor(result) else np.array(result),
        )
        return {}
    return timed(work, request["repeats"])


serve(answer)

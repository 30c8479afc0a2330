"""Probes of others: their scores by their own formulas in PyTorch, against ours after the import, and the doctor."""

import numpy as np
import pytest
from tests.probe.tasks import marked

import manyheads as mh
from manyheads.cli.main import main
from manyheads.probe.checkup import checkup

torch = pytest.importorskip("torch")
nn, DIM = torch.nn, 8


class Eleuther(nn.Module):
    def __init__(self, outputs, heads=3):
        super().__init__()
        self.q, self.v = nn.Linear(DIM, heads, bias=False), nn.Linear(DIM, heads * outputs)
        self.position_weight = nn.Parameter(torch.zeros(heads))

    def forward(self, X, mask, position=None):
        logits = self.q(X).masked_fill(~mask[:, :, None], -1e9)
        if position is not None:
            logits = logits + position[:, :, None] * self.position_weight
        values = self.v(X).unflatten(-1, (len(self.position_weight), -1))
        return (torch.softmax(logits, 1)[..., None] * values).sum((1, 2))


class AttnLite(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.context_query, self.classifier = nn.Linear(DIM, 1), nn.Linear(DIM, outputs)

    def forward(self, X, mask):
        logits = self.context_query(X) / DIM**0.5
        A = torch.softmax(logits.masked_fill(~mask[:, :, None], -torch.inf), 1)
        return self.classifier((A * X).sum(1))


class Efficient(nn.Module):
    def __init__(self, outputs, queries=4):
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, queries, DIM))
        self.v, self.linear = nn.Linear(DIM, DIM), nn.Linear(DIM, outputs)

    def forward(self, X, mask):
        logits = X @ self.cls_token[0].T / DIM**0.5
        A = torch.softmax(logits.masked_fill(~mask[:, :, None], -torch.inf), 1)
        values = self.v(X).unflatten(-1, (self.cls_token.shape[1], -1))
        return self.linear(torch.einsum("ntq,ntqj->nqj", A, values).flatten(1))


class Aim(nn.Module):
    def __init__(self, outputs, heads=2, queries=2):
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, queries, DIM))
        self.k, self.v = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.linear, self.heads = nn.Linear(DIM, outputs), heads
        self.bn = nn.BatchNorm1d(DIM, affine=False, eps=1e-6)
        self.bn.running_mean.normal_()
        self.bn.running_var.uniform_(0.5, 2.0)

    def forward(self, X, mask):
        X = self.bn(X.transpose(1, 2)).transpose(1, 2)
        split = lambda part: part.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # noqa: E731
        q = split(self.cls_token.expand(len(X), -1, -1))
        out = nn.functional.scaled_dot_product_attention(
            q, split(self.k(X)), split(self.v(X)), attn_mask=mask[:, None, None, :]
        )
        return self.linear(out.transpose(1, 2).flatten(2).mean(1))


class Pooler(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 1, DIM))
        self.attention = nn.MultiheadAttention(DIM, 2, batch_first=True)
        nn.init.normal_(self.attention.in_proj_bias)
        self.linear = nn.Linear(DIM, outputs)

    def forward(self, X, mask):
        query = self.query.expand(len(X), -1, -1)
        return self.linear(self.attention(query, X, X, key_padding_mask=~mask)[0][:, 0])


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("kind", [Eleuther, AttnLite, Efficient, Aim, Pooler])
def test_the_scores_are_theirs(kind, outputs):
    for seed in range(4 if outputs > 1 else 2):
        torch.manual_seed(seed)
        module = kind(outputs).double().eval()
        X = torch.randn(5, 6, DIM, dtype=torch.float64)
        mask = torch.arange(6)[None] < torch.tensor([6, 1, 3, 6, 2])[:, None]
        theirs = module(X, mask).detach().numpy()
        ours = mh.AttentionProbe.open(module.state_dict(), num_heads=2)
        found = ours.decision_function(X.numpy(), mask.numpy())
        wanted = theirs[:, 0] if outputs == 1 else theirs
        wanted = theirs[:, 1] - theirs[:, 0] if outputs == 2 else wanted
        assert np.abs(found - wanted).max() < 1e-10


def test_the_place_of_a_token_is_one_more_feature():
    torch.manual_seed(0)
    module = Eleuther(1).double()
    module.position_weight.data.normal_()
    X, mask = torch.randn(5, 6, DIM, dtype=torch.float64), torch.ones(5, 6, dtype=torch.bool)
    place = torch.arange(6, dtype=torch.float64).expand(5, 6)
    wide = torch.cat([X, place[:, :, None]], 2).numpy()
    found = mh.AttentionProbe.open(module.state_dict()).decision_function(wide)
    assert np.allclose(found, module(X, mask, place)[:, 0].detach().numpy(), atol=1e-12)


def test_what_is_not_known_is_refused_in_one_line():
    for state, words in (
        ({"weight": np.zeros(3)}, "of no probe that is known: weight"),
        ({k: v.numpy() for k, v in Aim(1).state_dict().items()}, "pass the module's own number"),
        ({"q.weight": 1, "v.weight": 1, "v.bias": 1, "o.weight": 1}, "has hidden units"),
    ):
        with pytest.raises(ValueError, match=words):
            mh.AttentionProbe.open(state)


def test_the_doctor_looks_at_a_probe_trained_by_adam(tmp_path, capsys):
    from safetensors.torch import save_file

    torch.manual_seed(0)
    X, y, _ = marked(120, 2, seed=7, ragged=False)
    wide = np.concatenate([X, np.zeros((120, 6, DIM - 4))], axis=2)
    module = Eleuther(1)
    tokens, mask = torch.tensor(wide, dtype=torch.float32), torch.ones(120, 6, dtype=torch.bool)
    optimizer = torch.optim.Adam(module.parameters(), 0.02)
    for _ in range(150):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(
            module(tokens, mask)[:, 0], torch.tensor((y == "b").astype(np.float32))
        )
        loss.backward()
        optimizer.step()
    save_file(module.state_dict(), tmp_path / "theirs.safetensors")
    np.savez(tmp_path / "data.npz", tokens=wide, labels=y)
    words = [str(tmp_path / "theirs.safetensors"), "--data", str(tmp_path / "data.npz")]
    assert main(["check", *words, "--no-compare"]) == 0
    said = capsys.readouterr().out
    for line in ("errors ", "margin ", "attention ", "heads ", "theory      From here, gradient"):
        assert line in said
    theirs = mh.AttentionProbe.open(tmp_path / "theirs.safetensors")
    found = checkup(theirs, wide, y, compare=False)
    assert abs(found.loss - float(loss.detach())) < 0.05 and found.num_heads == 3


def test_the_doctor_sees_equal_dead_and_sleeping_heads():
    X, y, mask = marked(60, 2)
    probe = mh.AttentionProbe(num_heads=3, start_norm=0.0, penalty=1e-3, positions=False)
    probe.fit(X, y, mask=mask)
    theta = probe.fit_.theta
    theta[:15] = 0.0  # queries: all heads are equal and average
    theta[-5:] = 0.0  # the values of the last head
    found = checkup(probe, X, y, mask, compare=False)
    assert found.equal == ((2, 1), (3, 1), (3, 2)) and found.dead == (3,)
    assert found.awake < 1e-12 and "asleep" in str(found) and found.effective_heads < 2.01

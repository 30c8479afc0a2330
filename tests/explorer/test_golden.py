"""The page's engine and the library on the same arrays: they agree at every recorded step."""

from pathlib import Path

import explorer_settings as golden
import numpy as np
import pytest

import manyheads as mh

RUN = Path(__file__).with_name("golden.js").read_text()
TOLERANCE = 1e-9  # relative; at 10^12 heads two classes of opposite sign leave 10^6 times the rounding of float64
QUICK = (
    "the default",
    "10^12 heads",
    "last token, ragged",
    "normalized",
    "Adam",
    "W's step times H, from zero",
    "parity",
    "a learned query",
)
SIGNED = ("margin",)  # these pass through zero: relative to their largest value along the run


def difference(wanted, got, scale=None):
    """The largest relative difference."""
    a, b = np.asarray(wanted, float), np.asarray(got, float)
    assert a.shape == b.shape and np.isfinite(b).all()
    size = np.maximum(np.abs(a), np.abs(b)) if scale is None else np.asarray(scale)
    return float(np.max(np.abs(a - b) / np.where(size > 0, size, 1.0)))


@pytest.fixture(scope="module")
def page(browser, explorer_page):
    tab = browser.new_page()
    tab.goto(explorer_page.as_uri())
    yield tab
    tab.close()


@pytest.fixture(scope="module")
def worst():
    """Setting -> worst difference, printed at the end."""
    found = {}
    yield found
    name = max(found, key=found.get)
    print(f"\n{len(found)} settings, worst relative difference {found[name]:.2e} ({name})")


def test_there_are_36_settings():
    assert len(golden.SETTINGS) == 36


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.browser)
        for name in golden.SETTINGS
    ],
)
def test_the_page_equals_the_library(page, worst, name):
    told = golden.export(name)
    got = page.evaluate(RUN, told)
    assert got["status"] == "finished" and got["steps"] == told["steps"]
    found = {}
    for record, values in told["records"].items():
        scale = np.abs(values).max() if record in SIGNED else None
        found[record] = difference(values, got["records"][record], scale)
    found["attention"] = difference(np.ravel(told["attention"]), got["attention"])
    averages = np.ravel(told["averages"])  # which may be zero in a direction
    found["averages"] = difference(averages, got["averages"], np.abs(averages).max())
    if "admissible" in told:
        found["admissible"] = difference(told["admissible"], got["admissible"])
    for target, terms in told.get("identity", {}).items():  # they cancel: relative to the largest
        scale = max(map(abs, terms.values()))
        got_terms = got["identity"][target]
        found[f"identity, {target}"] = max(
            difference(value, got_terms[key], scale) for key, value in terms.items()
        )
    theorem = told.get("theorem", {})
    found |= {
        f"theorem {key}": difference(value, got["theorem"][key]) for key, value in theorem.items()
    }
    worst[name] = max(found.values())
    assert worst[name] < TOLERANCE, found


LEFT_OUT = """(told) => {
  const train = Engine.dataFromLists(told.train), model = Engine.modelFromLists(told.start, train.T);
  const search = Engine.leaveOneOut({ model, train, loss: told.loss, stepSize: told.stepSize, numSteps: told.numSteps }, 3);
  for (;;) { const { value, done } = search.next(); if (done) return value; }
}"""


@pytest.mark.browser
@pytest.mark.parametrize("name", ["strong noise", "from zero"])
def test_leaving_one_out_equals_the_library(page, name):
    told = golden.export(name)
    kept = told["train"]
    data = mh.Dataset.from_arrays(np.asarray(kept["tokens"]), np.asarray(kept["labels"]))
    start = mh.MultiHead(
        *(np.asarray(told["start"][part]) for part in ("keyQuery", "readout", "multiplicity"))
    )
    wanted = mh.measures.leave_one_out(
        start, data, step_size=told["stepSize"], num_steps=told["numSteps"], indices=[0, 1, 2]
    )
    got = page.evaluate(LEFT_OUT, told)
    for here, there in (
        ("distance", "distance"),
        ("left_out_loss", "leftOut"),
        ("seen_loss", "seen"),
    ):
        assert (
            difference(getattr(wanted, here)[:, -1], [one[there] for one in got["found"]])
            < TOLERANCE
        ), here
    # one sequence of few moves the end by less than training does
    assert got["moved"] > 2 * max(one["distance"] for one in got["found"])


PARITY = """(positions) => {
  const { parts } = Engine.prepare({ data: "parity", T: 4, positions, start: "zero", heads: 1, decoder: "full", nTest: 0,
    loss: "logistic", optimizer: "gd", stepSize: 0.5, numSteps: 1, seed: 1 });
  const { n, T, d, tokens, labels } = parts.train;
  return { shape: [n, T, d], tokens: Array.from(tokens), labels: Array.from(labels) };
}"""


@pytest.mark.parametrize("positions", [False, True])
def test_parity_is_the_librarys(page, positions):
    wanted = golden._parity(4, positions)
    got = page.evaluate(PARITY, "yes" if positions else "no")
    assert tuple(got["shape"]) == wanted.tokens.shape
    assert got["tokens"] == wanted.tokens.ravel().tolist()
    assert got["labels"] == wanted.labels.tolist()


SLICE = """(told) => {
  const train = Engine.dataFromLists(told.train), model = Engine.modelFromLists(told.start, train.T);
  const target = Engine.paperTarget(model, told.mixture.oracle, told.mixture.scale);
  return Engine.slice(model, train, "logistic", target, [-1, 0, 0.5, 1, 2]);
}"""


@pytest.mark.parametrize("name", ["the default", "from zero, 10^12 heads"])
def test_a_slice_of_the_landscape_equals_the_library(page, name):
    told = golden.export(name)
    lists, oracle = told["train"], told["mixture"]["oracle"]
    data = mh.Dataset.from_arrays(np.asarray(lists["tokens"]), np.asarray(lists["labels"]))
    W, U, counts = (np.asarray(told["start"][k]) for k in ("keyQuery", "readout", "multiplicity"))
    to_U = np.broadcast_to(np.reshape(oracle["U"], U.shape[1:]), U.shape)
    signs = np.where(np.sum(U * to_U, axis=(1, 2)) >= 0, 1.0, -1.0)
    to_W = signs[:, None, None] * np.reshape(oracle["W"], W.shape[1:])
    step = told["mixture"]["scale"] / np.sqrt(counts.sum())
    wanted = []
    for place in (-1, 0, 0.5, 1, 2):
        moved = place * step
        model = mh.MultiHead.create(W + moved * to_W, U + moved * to_U, multiplicity=counts)
        margins = data.labels * np.asarray(model.scores(data), float)
        wanted.append(np.mean(np.logaddexp(0, -margins)))
    got = page.evaluate(SLICE, told)
    assert difference(wanted, got) < TOLERANCE
    assert min(wanted) < 0.2 < max(wanted)


AWAKE = """(told) => {
  const train = Engine.dataFromLists(told.train), ends = [];
  for (const [heads, scaling] of [[1, "paper"], [1e6, "mean_field"], [1e6, "paper"]]) {
    const model = Engine.zeroStart({ T: train.T, d: train.d, heads, decoder: "full" });
    const run = new Engine.Run({ model, train, test: null, loss: "logistic", optimizer: "gd", scaling, stepSize: 0.5, numSteps: 60, target: null });
    let last = null;
    while (run.status === "running") { const row = run.advance(); if (row) last = row; }
    ends.push([last.trainLoss, last.mass[0]]);
  }
  return ends;
}"""


def test_a_million_heads_with_their_step_given_back_are_one_head(page):
    one, million, asleep = page.evaluate(AWAKE, golden.export("from zero"))
    np.testing.assert_allclose(million, one, rtol=1e-12)
    assert one[1] > 0.4 and asleep[1] < 0.251  # of attention on the relevant tokens

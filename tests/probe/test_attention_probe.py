"""The probe as its users meet it: every way to pass sequences, determinism, warnings, files, PyTorch."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from tests.probe.tasks import marked

import manyheads as mh
from manyheads.probe import batches, file, fitting
from manyheads.probe.choice import fold_of
from manyheads.probe.self_attention import _scores

X, Y, MASK = marked(labels=3)
LISTS = [x[m] for x, m in zip(X, MASK, strict=True)]
QUICK = dict(num_heads=2, positions=False, penalty=1e-3)


@pytest.fixture(scope="module")
def probe():
    return mh.AttentionProbe(**QUICK).fit(X, Y, mask=MASK)


def test_it_learns_what_a_linear_model_of_the_mean_cannot():
    from sklearn.linear_model import LogisticRegression

    train, test = marked(200, 2, seed=1, ragged=False), marked(2000, 2, seed=2, ragged=False)
    probe = mh.AttentionProbe().fit(train[0], train[1])
    mean = LogisticRegression().fit(train[0].mean(axis=1), train[1])
    wrong = 1 - probe.score(test[0], test[1])
    assert wrong < 0.5 * (1 - mean.score(test[0].mean(axis=1), test[1])) and wrong < 0.01


def test_padding_is_said_in_three_ways_and_never_read(probe):
    wanted = probe.decision_function(X, mask=MASK)
    junk = np.where(MASK[:, :, None], X, 1e9)
    assert np.array_equal(probe.decision_function(junk, mask=MASK), wanted)
    assert np.array_equal(probe.decision_function(np.where(MASK[:, :, None], X, np.nan)), wanted)
    assert np.allclose(probe.decision_function(LISTS), wanted, atol=1e-12)
    again = mh.AttentionProbe(**QUICK).fit(LISTS, Y)
    assert np.array_equal(again.fit_.theta, probe.fit_.theta)


def test_the_same_data_give_the_same_probe():
    one, other = (mh.AttentionProbe().fit(X, Y, mask=MASK) for _ in range(2))
    assert np.array_equal(one.fit_.theta, other.fit_.theta) and one.penalty_ == other.penalty_


def test_longer_sequences_are_read_at_predict(probe):
    long = np.concatenate([X, np.full_like(X, np.nan)], axis=1)
    long[:, :6][~MASK] = np.nan
    wanted = probe.decision_function(X, MASK)
    assert np.allclose(probe.decision_function(long), wanted, atol=1e-12)
    full = mh.AttentionProbe(**QUICK, decoder="full").fit(X, Y, mask=MASK)
    with pytest.raises(ValueError, match="12 tokens, and decoder='full' has one readout for each"):
        full.predict(long)


def test_predict_compiles_no_more_for_other_numbers_of_sequences():
    pooled = mh.AttentionProbe(**QUICK, decoder="pooled").fit(X, Y, mask=MASK)
    pooled.predict(X[:10], mask=MASK[:10])
    before = _scores._cache_size()
    for count in (1, 21, 60):
        assert len(pooled.predict(X[:count], mask=MASK[:count])) == count
    assert _scores._cache_size() == before


def test_scores_probabilities_attention_and_parts_agree(probe):
    scores, chances = probe.decision_function(X, MASK), probe.predict_proba(X, MASK)
    assert np.allclose(chances.sum(axis=1), 1)
    assert np.array_equal(np.argmax(scores, axis=1), np.argmax(chances, axis=1))
    maps = probe.attention(X, MASK)
    assert np.allclose(maps.sum(axis=2), 1) and (maps[:, 0][~MASK] == 0).all()
    assert np.allclose(probe.parts(X, MASK).sum(axis=1), scores)


def test_a_weight_of_two_counts_as_a_repetition():
    weight = np.ones(60)
    weight[:20], weight[50:] = 2, 0
    rows = np.repeat(np.arange(60), weight.astype(int))
    heavy = mh.AttentionProbe(**QUICK).fit(X, Y, mask=MASK, sample_weight=weight)
    many = mh.AttentionProbe(**QUICK).fit(X[rows], Y[rows], mask=MASK[rows])
    assert np.isclose(heavy.loss_, many.loss_, atol=0.02)


def test_it_searches_clones_and_pickles_on_lists(probe):
    search = GridSearchCV(mh.AttentionProbe(**QUICK), {"penalty": [1e-3, 1e-2]}, cv=2)
    search.fit(LISTS, Y)
    assert search.best_params_["penalty"] in (1e-3, 1e-2)
    assert len(cross_val_score(clone(probe), LISTS, Y, cv=2)) == 2
    again = pickle.loads(pickle.dumps(probe))
    assert np.array_equal(again.predict_proba(LISTS), probe.predict_proba(LISTS))


def test_warnings_say_what_to_do():
    with pytest.warns(Warning, match="stopped at max_steps=3 with a gradient of .*; pass a larger"):
        mh.AttentionProbe(**QUICK, max_steps=3).fit(X, Y, mask=MASK)
    noise = np.random.default_rng(0).normal(size=(40, 3, 2))
    with pytest.warns(UserWarning, match="the loss is flat"):
        mh.AttentionProbe(num_heads=2, positions=False, penalty=10.0).fit(noise, np.arange(40) % 2)


def test_long_work_is_announced(capsys, monkeypatch):
    monkeypatch.setattr(fitting, "ENTRY_SECONDS", 1.0)
    monkeypatch.setattr(fitting, "BATCHES_FROM", 1e30)
    mh.AttentionProbe(**QUICK).fit(X, Y, mask=MASK)
    said = capsys.readouterr().err
    assert "s of one core and" in said and "Ctrl-C stops" in said


def test_mini_batches_are_as_good_as_all_data_at_once(monkeypatch):
    data = marked(600, 2, seed=3, ragged=False)
    settings = dict(num_heads=2, positions=False, penalty=1e-4)
    whole = mh.AttentionProbe(**settings).fit(data[0], data[1])
    monkeypatch.setattr(fitting, "BATCHES_FROM", 0.0)
    monkeypatch.setattr(fitting, "FEWEST_STREAMED", 0)
    monkeypatch.setattr(batches, "BATCH", 32)
    monkeypatch.setattr(batches, "EPOCHS", 200)
    one, two = (mh.AttentionProbe(**settings).fit(data[0], data[1]) for _ in range(2))
    assert one.fit_.method == "Adam" and one.converged_
    fresh = marked(300, 2, seed=4, ragged=False)
    assert one.score(fresh[0], fresh[1]) > whole.score(fresh[0], fresh[1]) - 0.03
    assert np.array_equal(one.fit_.theta, two.fit_.theta)


def test_ctrl_c_stops_and_raises(monkeypatch):
    def stop(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting.Problem, "minimize", stop)
    probe = mh.AttentionProbe(**QUICK)
    with pytest.raises(KeyboardInterrupt):
        probe.fit(X, Y, mask=MASK)
    assert not hasattr(probe, "fit_")


def test_a_file_gives_the_same_scores_and_a_changed_bit_is_refused(probe, tmp_path):
    place = tmp_path / "probe.safetensors"
    probe.save(place, note="kept")
    again = mh.AttentionProbe.load(place)
    assert np.array_equal(again.predict_proba(LISTS), probe.predict_proba(LISTS))
    assert list(again.classes_) == ["a", "b", "c"]
    assert file.load(place)[2] == {"note": "kept"}
    content = bytearray(place.read_bytes())
    content[-3] ^= 1
    place.write_bytes(content)
    with pytest.raises(ValueError, match="does not match its checksum"):
        mh.AttentionProbe.load(place)


@pytest.mark.parametrize("positions", [False, True])
def test_pytorch_gives_the_same_scores(positions):
    torch = pytest.importorskip("torch")
    for labels in (2, 3):
        data, y, mask = marked(labels=labels)
        made = mh.AttentionProbe(**QUICK | {"positions": positions}).fit(data, y, mask=mask)
        wanted = made.decision_function(data, mask)
        found = made.to_torch()(torch.from_numpy(data), torch.from_numpy(mask)).detach().numpy()
        assert np.allclose(found.reshape(wanted.shape), wanted, atol=1e-10)


def test_the_certificate_speaks_about_the_end_point(probe):
    data, y, mask = marked(labels=2)
    pair = mh.AttentionProbe(**QUICK).fit(data, y, mask=mask)
    assert pair.certificate_.nats > 0 and "certificate_" in dir(pair)
    assert probe.certificate_.nats >= 0  # of the two labels it confuses most
    assert "certificate_" not in dir(mh.AttentionProbe(**QUICK))


def test_folds_hold_every_class_in_equal_shares():
    codes = np.repeat([0, 1, 2], [20, 11, 4])
    folds = fold_of(codes, 5)
    assert np.ptp(np.bincount(folds)) <= 1
    for code in range(3):
        assert np.ptp(np.bincount(folds[codes == code], minlength=5)) <= 1


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("decoder='first' must be", dict(decoder="first")),
        ("num_heads=0 must be a whole number >= 1", dict(num_heads=0)),
        ("num_heads=2.5 must be", dict(num_heads=2.5)),
        ("num_heads=True must be", dict(num_heads=True)),
        ("start_norm=-1 must be", dict(start_norm=-1)),
        ("positions='yes' must be", dict(positions="yes")),
        ("penalty=nan must be", dict(penalty=float("nan"))),
        ("penalty='small' must be", dict(penalty="small")),
        ("max_steps=0 must be", dict(max_steps=0)),
        ("y holds one class", dict(y=["a"] * 60)),
        ("60 sequences and y 59 labels", dict(y=Y[:59])),
        ("look like numbers to be", dict(y=np.linspace(0, 1, 60))),
        ("mask has shape", dict(mask=MASK[:, :5])),
        ("mask has shape", dict(mask=MASK.astype(float))),
        ("has no real token", dict(mask=np.zeros_like(MASK))),
        ("has shape", dict(X=np.zeros((60, 6, 0)))),
        ("must be real numbers", dict(X=X.astype(complex))),
        ("NaN or infinity", dict(X=np.where(X > 2, np.inf, X))),
        ("above 1e+40", dict(X=X * 1e45)),
        ("mask= goes with an array", dict(X=LISTS)),
        ("has tokens of dimension", dict(X=[*LISTS[:59], np.zeros((3, 9))], mask=None)),
        ("must be real numbers", dict(X=[*LISTS[:59], [["a"]]], mask=None)),
    ],
)
def test_bad_input_is_one_line(words, change):
    made = {name: value for name, value in change.items() if name not in ("X", "y", "mask")}
    with pytest.raises(ValueError) as raised:
        mask = change.get("mask", MASK)
        mh.AttentionProbe(**made).fit(change.get("X", X), change.get("y", Y), mask=mask)
    assert words in str(raised.value) and "\n" not in str(raised.value)

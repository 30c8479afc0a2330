"""The user's own files, read by the page itself: the same arrays as in Python, and kind words where that cannot be."""

import numpy as np
import pytest

import manyheads as mh

pytestmark = pytest.mark.browser

SMALL = "#T=4&d=6&M=2&relevant=2&n=20&nTest=20&nFresh=20&numSteps=5&start=zero"


def arrays(n=24, T=3, d=4):
    random = np.random.default_rng(0)
    tokens, labels = random.standard_normal((n, T, d)), np.where(np.arange(n) % 2, 1.0, -1.0)
    tokens[:, 0, 0] += labels
    return tokens, labels


def given(tab, path):
    """Choose a file, and wait for what the page says."""
    said = "document.querySelector('#message').textContent + document.querySelector('#hint').textContent"
    tab.page.evaluate(
        "() => { explorer.app.say(''); document.querySelector('#hint').textContent = ''; }"
    )
    tab.page.set_input_files("#file", str(path))
    tab.until(said, limit=30)
    return tab.ask(said)


@pytest.mark.parametrize("how", ["stored", "deflated", "float32", "fortran", "texts", "dataset"])
def test_an_npz_gives_the_same_arrays(desk, tmp_path, how):
    tokens, labels = arrays()
    path = tmp_path / "own.npz"
    if how == "dataset":
        mh.Dataset.from_arrays(tokens, labels).save(path)
    elif how == "texts":
        np.savez(path, tokens=tokens, labels=np.where(labels > 0, "yes", "no"))
    else:
        save = np.savez_compressed if how == "deflated" else np.savez
        kinds = {"float32": tokens.astype("f4"), "fortran": np.asfortranarray(tokens)}
        save(path, tokens=kinds.get(how, tokens), labels=labels.astype(int))
    desk.visit(SMALL)
    assert "24 sequences of 3 tokens" in given(desk, path)
    desk.status("finished")
    run = desk.ask("explorer.app.run.settings.data")
    own = desk.ask("[Array.from(explorer.app.own.tokens), Array.from(explorer.app.own.labels)]")
    wanted = tokens.astype("f4") if how == "float32" else tokens
    assert run == "own" and own == [wanted.astype(float).ravel().tolist(), labels.tolist()]
    assert [url for url in desk.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_a_csv_of_sequences_of_different_length(desk, tmp_path):
    tokens, labels = arrays()
    lines = ["sequence,label,a,b,c,d"]
    for i in range(24):
        for t in range(2 + i % 2):
            cells = [
                f'"no. {i}, quoted"',
                "up" if labels[i] > 0 else "down",
                *tokens[i, t].tolist(),
            ]
            lines.append(",".join(map(str, cells)))
    (tmp_path / "own.csv").write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
    desk.visit(SMALL)
    assert "24 sequences of 3 tokens; label up counts as +1" in given(desk, tmp_path / "own.csv")
    desk.status("finished")
    own = desk.ask(
        "({ tokens: Array.from(explorer.app.own.tokens), mask: Array.from(explorer.app.own.mask), labels: Array.from(explorer.app.own.labels) })"
    )
    mask = np.arange(3)[None, :] < (2 + np.arange(24) % 2)[:, None]
    assert own["mask"] == mask.astype(int).ravel().tolist() and own["labels"] == labels.tolist()
    assert own["tokens"] == np.where(mask[:, :, None], tokens, 0).ravel().tolist()
    assert desk.complaints == []


def test_wide_tokens_get_a_learned_query_and_many_sequences_are_thinned(desk, tmp_path):
    tokens, labels = arrays(n=1200, T=2, d=100)
    np.savez(tmp_path / "own.npz", X=tokens, y=labels)
    desk.visit(SMALL + "&n=8")
    said = given(desk, tmp_path / "own.npz")
    assert "1,200 sequences; the page takes 500" in said and "learned query" in said
    desk.status("finished")
    assert desk.ask("explorer.app.run.model.W.length") == 100


CSV = "sequence,label,x\n"
WRONG = [
    ("own.csv", CSV + "a,1,oops\n", "Line 2, column x: “oops” is not a number"),
    ("own.csv", CSV + "a,1\n", "Line 2 has 2 cells; line 1 names 3 columns"),
    ("own.csv", CSV + "a,1,2\na,0,2\n", "Line 3, column label"),
    ("own.csv", "sequence;label\n", "a column “sequence” is needed"),
    ("own.csv", CSV, "no rows below the names"),
    ("own.csv", CSV + 'a,1,"2\n', "opens a quoted cell that never ends"),
    ("own.csv", CSV + "a,1,2\nb,0,2\n", "needs 8 at least"),
    ("own.npz", "PK not a zip", "damaged, or is no .npz file"),
    ("own.txt", "", "cannot be read here; choose an .npz file"),
]


@pytest.mark.parametrize("name, text, words", WRONG)
def test_a_file_that_cannot_be_read_is_refused_in_words(desk, tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    desk.visit(SMALL)
    assert words in given(desk, tmp_path / name)
    assert desk.ask("explorer.app.settings.data") == "mixture" and desk.complaints == []


BAD_ARRAYS = [
    ({"tokens": np.zeros((9, 2)), "labels": np.zeros(9)}, "must be (sequences, tokens, numbers)"),
    ({"tokens": np.zeros((9, 2, 2)), "labels": np.zeros(8)}, "8 labels for 9 sequences"),
    ({"tokens": np.zeros((9, 2, 2)), "labels": np.zeros(9)}, "1 different values"),
    ({"tokens": np.zeros((9, 2, 2)), "labels": np.arange(9).astype(object)}, "Python objects"),
    ({"a": np.zeros(3)}, "it needs tokens and labels"),
    ({"tokens": np.full((9, 2, 2), np.nan), "labels": np.arange(9) % 2}, "is not a finite number"),
]


@pytest.mark.parametrize("content, words", BAD_ARRAYS)
def test_arrays_that_do_not_fit_are_refused_in_words(desk, tmp_path, content, words):
    np.savez(tmp_path / "own.npz", **content)
    desk.visit(SMALL)
    assert words in given(desk, tmp_path / "own.npz")

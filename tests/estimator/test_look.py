import json
import xml.etree.ElementTree as xml

import numpy as np
import pytest

from manyheads.cli.main import main
from manyheads.estimator.fitted import Fitted
from manyheads.estimator.look import MOST_BLOCKS, Look, as_svg, as_text, look

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 6, 3))
LABELS = np.where(X[:, 1, 0] > 0, "up", "<down>")
FIT = ["--start", "gaussian", "--step-size", "1", "--steps", "20", "--no-theory", "--quiet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("look")
    mask = np.ones((60, 6), bool)
    mask[2:, 4:] = False
    np.savez(folder / "data.npz", tokens=X, labels=LABELS)
    np.savez(
        folder / "ragged.npz", tokens=X, labels=np.digitize(X[:, 1, 0], [-0.5, 0.5]), mask=mask
    )
    for name, more in (
        ("data", ["--heads", "2"]),
        ("ragged", ["--heads", "1", "--decoder", "last"]),
    ):
        assert (
            main(
                [
                    "fit",
                    str(folder / f"{name}.npz"),
                    "-o",
                    str(folder / f"{name}.safetensors"),
                    *FIT,
                    *more,
                ]
            )
            == 0
        )
    return folder


def softmax(logits):
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def test_the_attention_is_the_softmax_of_the_prepared_tokens_averaged_over_queries(folder):
    fitted = Fitted.load(folder / "data.safetensors")
    prepared, model = fitted.dataset(X[:3]).tokens, fitted.models[0]
    for i, one in enumerate(look(fitted, X[:3], None, LABELS)):
        maps = softmax(np.einsum("td,gde,se->gts", prepared[i], model.key_query, prepared[i]))
        assert np.allclose(one.attention, maps.mean(axis=1), atol=1e-6)
        assert (
            one.predicted == fitted.predict(X[i : i + 1])[0]
            and one.label == LABELS[i]
            and one.number == i
        )
        assert one.probability == fitted.probabilities(X[i : i + 1]).max()
        assert (
            np.allclose(one.norms, np.linalg.norm(X[i], axis=1))
            and one.heads == (1, 1)
            and one.num_real == 6
        )


def test_padding_is_not_drawn_and_the_model_of_the_predicted_class_is_shown(folder):
    fitted = Fitted.load(folder / "ragged.safetensors")
    with np.load(folder / "ragged.npz") as file:
        tokens, mask = file["tokens"][:4], file["mask"][:4]
    looks = look(fitted, tokens, mask, None)
    assert [one.attention.shape for one in looks] == [(1, 6), (1, 6), (1, 4), (1, 4)]
    maps = fitted.attention((tokens, mask))
    for i, one in enumerate(looks):
        assert one.label is None and np.allclose(one.attention.sum(axis=1), 1)
        chosen = fitted.label_names.index(one.predicted)
        assert np.allclose(one.attention[0], maps[i, chosen, 0, 0, : one.attention.shape[1]])


def test_shorter_sequences_and_masks_with_gaps_keep_the_numbers_of_their_tokens(folder):
    fitted = Fitted.load(folder / "data.safetensors")
    (short,) = look(fitted, X[:1, :3], None, None)
    assert short.attention.shape == (2, 3) and np.allclose(short.attention.sum(axis=1), 1)
    mask = np.array([[False, True, False, True, True, False]])
    (gaps,) = look(fitted, X[:1], mask, None)
    assert (
        gaps.attention.shape == (2, 5)
        and gaps.num_real == 3
        and np.allclose(gaps.attention.sum(axis=1), 1)
    )
    assert (
        np.all(gaps.attention[:, [0, 2]] == 0)
        and np.all(gaps.norms[[0, 2]] == 0)
        and gaps.summary().count("(") == 3
    )
    prepared, model = fitted.dataset((X[:1], mask)).tokens[0], fitted.models[0]
    maps = softmax(
        np.einsum("td,gde,se->gts", prepared[[1, 3, 4]], model.key_query, prepared[[1, 3, 4]])
    )
    assert np.allclose(gaps.attention[:, [1, 3, 4]], maps.mean(axis=1), atol=1e-6)
    (one,) = look(fitted, X[:1, :1], None, None)
    assert one.attention.tolist() == [[1.0], [1.0]]


def test_nothing_to_look_at_and_huge_tokens_are_refused(folder):
    fitted = Fitted.load(folder / "data.safetensors")
    mask = np.ones((2, 6), bool)
    mask[1] = False
    with pytest.raises(
        ValueError, match="sequence 1 has no token that is not masked; leave it out"
    ):
        look(fitted, X[:2], mask, None)
    with pytest.raises(
        ValueError,
        match=r"the largest entry of the tokens is .*e\+200; entries up to 1e\+40 are allowed",
    ):
        fitted.predict(1e200 * X[:2])


def made(num_tokens=4, heads=(1, 3), label="a<b"):
    attention = np.full((len(heads), num_tokens), 0.36 / (num_tokens - 1))
    attention[:, 2] = 0.64
    return Look(
        7, label, label, 0.9, np.arange(num_tokens, dtype=float), attention, heads, num_tokens
    )


def test_a_sequence_is_drawn_in_one_row_or_in_a_grid():
    row, grid, plain = (
        as_text([made()]),
        as_text([made()], columns=2),
        as_text([made()], columns=2, plain=True),
    )
    assert row.splitlines() == [
        "sequence 7: predicted a<b (probability 0.90), labeled a<b",
        "  tokens           |  ▒▒▓▓██|",
        "  kind 1: 1 head   |░░░░██░░|",
        "  kind 2: 3 heads  |░░░░██░░|",
        "  most attention on token 2 (2.6 times even), 0 (0.48), 1 (0.48)",
        "",
        "shades: ▒ about an even share of attention, ▓ more, █ twice or more, ░ less",
    ]
    assert grid.splitlines()[2:4] == [
        "    ▒▒              ░░░░              ░░░░",
        "  ▓▓██              ██░░              ██░░",
    ]
    assert plain.isascii() and plain.splitlines()[3] == "  ++##              ##..              ##.."


def test_even_attention_is_drawn_as_even():
    even = Look(0, None, "a", 0.5, np.ones(5), np.full((1, 5), 0.2) * (1 + 1e-12), (10**12,), 5)
    assert "  all 1e+12 heads  |▒▒▒▒▒▒▒▒▒▒|" in as_text([even]) and "labeled" not in as_text([even])


def test_long_sequences_and_labels_are_drawn_in_rows_that_fit_a_line():
    lines = as_text([made(70, label="long " * 40)]).splitlines()
    assert [line.partition("|")[0].strip() for line in lines[1:10]] == [
        "tokens",
        "",
        "",
        "kind 1: 1 head",
        "",
        "",
        "kind 2: 3 heads",
        "",
        "",
    ]
    assert max(map(len, lines[1:])) <= 85 and len(lines[0]) < 120
    assert as_text([made()], columns=10**15) == as_text([made()])


def test_many_heads_are_cut_and_this_is_said():
    many = [made(heads=(1,) * (MOST_BLOCKS + 2))]
    text = as_text(many)
    assert text.count("  head ") == MOST_BLOCKS and "(2 more heads not drawn)" in text
    assert "(2 more heads not drawn)" in as_svg(many)


def test_the_picture_is_svg_with_one_square_per_token_and_block():
    tree = xml.fromstring(as_svg([made(), made(5, label="\x1b[31m & \n\0")], columns=2))
    squares = [
        rect for rect in tree.iter("{http://www.w3.org/2000/svg}rect") if rect.get("fill-opacity")
    ]
    assert len(squares) == 3 * (4 + 5)
    darkest = [float(rect.get("fill-opacity")) for rect in squares[4:8]]  # the first head
    assert np.argmax(darkest) == 2 and darkest[2] == 1
    width, height = (float(tree.get(side)) for side in ("width", "height"))
    assert all(float(rect.get("x")) < width and float(rect.get("y")) < height for rect in squares)


def test_the_command_draws_prints_json_and_writes_a_picture(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    given = ["look", "data.safetensors", "data.npz", "--count", "2", "--skip", "3"]
    assert main([*given, "-o", "picture.svg"]) == 0
    said = capsys.readouterr()
    assert (
        said.out.startswith("sequence 3: predicted ")
        and "\nsequence 4: " in said.out
        and "picture.svg" in said.err
    )
    assert (
        "&lt;down&gt;" in (folder / "picture.svg").read_text()
        and "<down>" not in (folder / "picture.svg").read_text()
    )
    assert main([*given, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["sequence"] for row in rows] == [3, 4] and np.shape(rows[0]["attention"]) == (2, 6)
    assert main(["look", "data.safetensors", "data.npz"]) == 0
    assert "48 of the 60 sequences were trained on" in capsys.readouterr().err
    (folder / "copy.svg").write_bytes((folder / "data.safetensors").read_bytes())
    assert main(["look", "copy.svg", "data.npz", "-o", "copy.svg"]) == 2
    assert "is the model itself" in capsys.readouterr().err and Fitted.load(folder / "copy.svg")


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("--count 0 must be 1 or more", ["--count", "0"]),
        ("--skip -1 must be 0 or more", ["--skip", "-1"]),
        ("--skip 60 leaves none of the 60 sequences", ["--skip", "60"]),
        ("--columns 0 must be 1 or more", ["--columns", "0"]),
        ("must be a name and .svg", ["-o", "picture.png"]),
        ("--columns: 'x' is not a whole number", ["--columns", "x"]),
        ("the folder does not exist", ["-o", "no/such/picture.svg"]),
    ],
)
def test_mistakes_are_one_line(words, more, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["look", "data.safetensors", "data.npz", *more]) == 2
    said = capsys.readouterr()
    assert words in said.err and said.err.count("\n") == 1 and not said.out

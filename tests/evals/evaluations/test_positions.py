"""Loss by position against one forward pass per prefix, for models that read past their training context or cannot."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import zoo
from evals.evaluations.positions import PositionsSpec, loss_by_position
from evals.found import Found
from evals.reading.windows import Text
from evals.spec import EvalSpec, EvaluationError
from evals.subject import Conditions, HeldOutText
from zoo.model import Decoder

CONTEXT = 8
VOCABULARY = 40
Draw = np.random.Generator


def model_of(position: Any = "alibi", seed: int = 3, **edits: Any) -> Decoder:
    base = {"d_model": 16, "n_layers": 2, "vocab_size": VOCABULARY, "block.mixer.position": position}
    model = zoo.build(zoo.load("small", **(base | edits)), seed=seed).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter, generator=torch.Generator().manual_seed(seed)))
    return model


def text_of(tokens: int = 400, before: tuple[int, ...] = ()) -> Text:
    draw = np.random.default_rng(1)
    sizes = draw.integers(0, 5, tokens).astype(np.uint32)
    return Text(draw.integers(VOCABULARY, size=tokens).astype("<u2"), sizes, before)


def read(model: Decoder, text: Text | None = None, context: int = CONTEXT, **spec: Any) -> Found:
    given = PositionsSpec(**({"tokens": 100} | spec))
    return loss_by_position(model, text or text_of(), given, context=context, batch=4, seed=0)


def nats(model: Decoder, text: Text, start: int, target: int) -> float:
    """−ln p of one token, from a pass over `start` … `target` − 1 alone; a BOS stands for the first of them."""
    first, *rest = text.tokens[start:target].tolist()
    with torch.inference_mode():
        tokens = torch.tensor([[*(text.before or (first,)), *rest]])
        return -float(model(tokens)[0, -1].log_softmax(-1)[int(text.tokens[target])])


def starts_of(found: Found) -> list[int]:
    return [int(sample.doc_hash.split()[1].rstrip(",")) for sample in found.items]


def rows_of(found: Found, multiple: int) -> list[dict[str, Any]]:
    return [row for row in found.rows if row["multiple"] == multiple]


@pytest.mark.parametrize(
    ("position", "before"), [("alibi", ()), ("rope", ()), ("sinusoidal", ()), ("sinusoidal", (7,)), ("rope", (7, 8))]
)
def test_every_bucket_is_the_plain_mean(position: str, before: tuple[int, ...]) -> None:
    """Token by token, each from its own prefix; errors over stretches by scipy."""
    model, text = model_of(position), text_of(before=before)
    found = read(model, text)
    stretches = starts_of(found)
    assert len(stretches) == 100 // (4 * CONTEXT)
    for multiple in (1, 2, 4):
        length = multiple * CONTEXT
        starts = [[s + i * length for i in range(4 // multiple)] for s in stretches]
        for bucket in rows_of(found, multiple):
            places = range(bucket["first"], bucket["last"] + 1)
            plain = [[nats(model, text, s, s + p) for s in each for p in places] for each in starts]
            count = sum(int(text.sizes[s + p]) for each in starts for s in each for p in places)
            assert bucket["nats_per_token"] == pytest.approx(np.mean(plain), rel=1e-9)
            assert bucket["stderr"] == pytest.approx(stats.sem(np.mean(plain, axis=1)), rel=1e-6)
            assert bucket["bits_per_byte"] == pytest.approx(np.sum(plain) / count / math.log(2), rel=1e-9)
            assert (bucket["tokens"], bucket["bytes"]) == (np.size(plain), count)


@pytest.mark.parametrize(("context", "quarter", "before"), [(8, 2, ()), (6, 1, ()), (8, 2, (7,))])
def test_the_gap_is_of_the_same_tokens(context: int, quarter: int, before: tuple[int, ...]) -> None:
    model, text = model_of("sinusoidal"), text_of(before=before)
    found = read(model, text, context)
    length = 4 * context
    gaps, losses = [], []
    for start in starts_of(found):
        longer, shorter = [], []
        for piece in range(4):
            end = start + length - (3 - piece) * quarter
            for target in range(end - quarter + 1, end + 1):
                longer.append(nats(model, text, start, target))
                shorter.append(nats(model, text, end - context, target))
        losses.append(np.mean(longer))
        gaps.append(np.mean(longer) - np.mean(shorter))
    score = found.scores["positions"]["extrapolation_gap_4x"]
    assert score.value == pytest.approx(np.mean(gaps), rel=1e-7)
    assert score.stderr == pytest.approx(stats.sem(gaps), rel=1e-6)
    assert score.items == len(gaps)
    assert [sample.metrics["extrapolation_gap_4x"] for sample in found.items] == pytest.approx(gaps, rel=1e-7)
    assert found.scores["positions"]["loss_4x"].value == pytest.approx(np.mean(losses), rel=1e-9)


def test_buckets_make_up_the_whole() -> None:
    """Also where the context is no power of two: no bucket holds trained and untrained places."""
    found = read(model_of(), context=12)
    for multiple, expected in ((1, []), (2, [16, 24]), (4, [16, 32, 48])):
        buckets = rows_of(found, multiple)
        ends = [bucket["last"] for bucket in buckets]
        assert [bucket["first"] for bucket in buckets] == [1, *(end + 1 for end in ends[:-1])]
        assert ends == [1, 2, 4, 8, 12, *expected]
        assert sum(bucket["tokens"] for bucket in buckets) == 48 * found.about["stretches"]


WINDOWED = {"block.mixer.window": 5}


@pytest.mark.parametrize(
    ("position", "edits"),
    [
        ("alibi", {}),
        ("nope", {}),
        ("rope", {}),
        ("t5", {}),
        ("xpos", {}),
        ("sinusoidal", {}),
        ("rope", WINDOWED),
        ("alibi", WINDOWED),
    ],
)
def test_positions_without_an_end_are_read(position: str, edits: dict[str, Any]) -> None:
    found = read(model_of(position, **edits))
    assert {(row["multiple"], row.get("reason")) for row in found.rows} == {(1, None), (2, None), (4, None)}
    assert all(score.value is not None for score in found.scores["positions"].values())
    assert list(found.scores["positions"]) == [
        "loss_1x",
        "loss_2x",
        "extrapolation_gap_2x",
        "loss_4x",
        "extrapolation_gap_4x",
    ]


def test_a_window_bounds_what_is_read() -> None:
    """Two layers of windows of 3 without positions: a token is predicted from the last five, wherever they are."""
    found = read(model_of("nope", **{"block.mixer.window": 3}))
    assert found.scores["positions"]["extrapolation_gap_4x"].value == pytest.approx(0, abs=1e-12)
    assert read(model_of("nope")).scores["positions"]["extrapolation_gap_4x"].value != pytest.approx(0, abs=1e-6)


def test_learned_positions_end() -> None:
    learned = {"kind": "learned", "length": 2 * CONTEXT}
    found, others = read(model_of(learned)), read(model_of("rope"))
    assert rows_of(found, 4) == [{"extension": None, "multiple": 4, "length": 32, "reason": "reads at most 16 tokens"}]
    assert list(found.scores["positions"]) == ["loss_1x", "loss_2x", "extrapolation_gap_2x"]
    # It was asked for the same text as causal models.
    assert starts_of(found) == starts_of(others)
    assert len(found.items) == found.about["stretches"]
    none = read(model_of({"kind": "learned", "length": 4}))
    assert (none.scores["positions"], none.items) == ({}, [])


def test_text_that_is_too_short_is_a_reason() -> None:
    found = read(model_of(), text_of(20))
    assert "reason" not in rows_of(found, 2)[0]
    assert rows_of(found, 2)[-1]["stderr"] is None  # one stretch says nothing of others
    assert rows_of(found, 4)[0]["reason"] == "held-out text has 20 tokens, and a window needs 33"
    nothing = read(model_of(), text_of(CONTEXT))
    assert (nothing.about["stretches"], nothing.scores["positions"], nothing.items) == (0, {}, [])


def test_it_is_repeatable_and_json_also_where_a_model_is_broken() -> None:
    assert read(model_of()) == read(model_of())
    broken = model_of()
    with torch.no_grad():
        broken.embedding.weight.fill_(float("nan"))
    found = read(broken)
    json.dumps(found.rows, allow_nan=False)
    assert found.scores["positions"]["loss_4x"].value is None
    assert {row["nats_per_token"] for row in found.rows} == {None}


def test_a_request_without_it_is_as_it_was() -> None:
    """Stored scores keep their names."""
    assert "positions" not in EvalSpec().model_dump(mode="json")
    spec = EvalSpec(tasks=(), positions=PositionsSpec(multiples=(4, 1, 4)))
    assert spec.model_dump(mode="json")["positions"] == {"multiples": [1, 4], "tokens": 16384}
    assert EvalSpec.model_validate(spec.model_dump(mode="json")) == spec
    with pytest.raises(EvaluationError, match=r"^tasks: is empty, and no other evaluation is requested$"):
        EvalSpec(tasks=()).under(Conditions(HeldOutText, "stdlib", {}, Path()))


@pytest.fixture(scope="module")
def sources() -> tuple[torch.Tensor, Text]:
    """Bytes of the standard library to train on, and others to read."""
    folder = Path(json.__file__).parents[1]
    texts = [path.read_bytes() for path in sorted(folder.glob("*.py"))[:60]]
    held, train = b"".join(texts[::10]), b"".join(t for i, t in enumerate(texts) if i % 10)
    tokens = np.frombuffer(held, np.uint8).astype("<u2")
    return torch.tensor(list(train)), Text(tokens, np.ones(len(tokens), dtype=np.uint32))


@pytest.mark.slow
def test_alibi_extrapolates_and_sinusoids_do_not(sources: tuple[torch.Tensor, Text]) -> None:
    """Press et al. 2022, arXiv:2108.12409, figure 1, at the smallest scale where it shows."""
    data, text = sources
    gaps = {}
    for position in ("alibi", "sinusoidal"):
        edits = {"d_model": 32, "n_layers": 2, "vocab_size": 256, "block.mixer.position": position}
        model = zoo.build(zoo.load("small", **edits))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        draw = torch.Generator().manual_seed(0)
        for _ in range(120):
            starts = torch.randint(len(data) - 33, (16, 1), generator=draw)
            rows = data[starts + torch.arange(33)]
            loss, _ = model.loss(rows[:, :-1], rows[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found = loss_by_position(model, text, PositionsSpec(tokens=8192), context=32, batch=64, seed=0)
        gaps[position] = found.scores["positions"]["extrapolation_gap_4x"]
    assert abs(gaps["alibi"].value) < 0.1
    assert gaps["sinusoidal"].value - 3 * gaps["sinusoidal"].stderr > 3 * abs(gaps["alibi"].value)

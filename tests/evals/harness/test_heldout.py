"""Items made from held-out documents: what they are made of, and that length gives nothing away."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
import scipy.stats

from evals.harness.datafiles import TaskDataError
from evals.harness.evaluate import jackknife_stderr
from evals.harness.tasks import heldout

PAIR = {"items": 200, "context_characters": 40, "continuation_characters": 16}


def documents(count: int = 6, words: int = 3000) -> list[str]:
    """Random words, some not ASCII, so that a passage is found at one place only."""
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyzéß"
    return [" ".join("".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(words)) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 6])
def test_the_labelled_context_is_the_one_that_the_text_has(count: int) -> None:
    texts = documents(count)
    items = heldout.pairs(texts, seed=0, **PAIR)["test"]
    assert len(items) == PAIR["items"]
    for item in items:
        real, other = item["contexts"][item["label"]], item["contexts"][1 - item["label"]]
        assert real + item["continuation"] in texts[item["document"]]
        assert all(other + item["continuation"] not in text for text in texts)
        assert any(other in text for text in texts)
        assert len(real) == len(other) == PAIR["context_characters"]
        assert len(item["continuation"]) == PAIR["continuation_characters"]
        assert item["continuation"][0] == " "
        assert item["continuation"][1].isalnum()


def test_labels_are_balanced_and_no_continuation_comes_twice() -> None:
    items = heldout.pairs(documents(), seed=0, **PAIR)["test"]
    ones = sum(items["label"])
    assert scipy.stats.binomtest(ones, len(items), 0.5).pvalue > 0.01
    assert max(Counter(items["continuation"]).values()) == 1


def test_the_seed_decides_the_items() -> None:
    texts = documents()
    first, again, other = (heldout.pairs(texts, seed=s, **PAIR)["test"].to_list() for s in (0, 0, 1))
    assert first == again
    assert first != other


def test_too_little_text_gives_fewer_items_or_a_clear_error() -> None:
    short = documents(count=2, words=60)
    assert 0 < len(heldout.pairs(short, seed=0, **PAIR)["test"]) < PAIR["items"]
    for nothing in ([], [""], ["one two three"]):
        with pytest.raises(TaskDataError, match="the held-out documents are too short"):
            heldout.pairs(nothing, seed=0, **PAIR)
    with pytest.raises(TaskDataError, match="the held-out documents are too short"):
        heldout.passages([" \n"], seed=0, passages=4, passage_bytes=100)


def test_passages_are_bounded_disjoint_and_spread_over_documents() -> None:
    texts = documents(count=5, words=400)
    items = heldout.passages([*texts, "tiny"], seed=0, passages=20, passage_bytes=256)["test"]
    assert len(items) == 20
    counts = Counter(items["document"])
    assert set(counts) == set(range(6))
    assert counts[5] == 1
    assert max(counts[i] for i in range(5)) - min(counts[i] for i in range(5)) <= 1
    for item in items:
        assert len(item["text"].encode()) <= 256
        assert item["text"] in [*texts, "tiny"][item["document"]]
    assert len(set(items["text"])) == 20


def test_perplexity_of_text_without_spaces_is_infinite_and_not_a_crash() -> None:
    assert heldout.perplexity([(-5000.0, 1)]) == math.inf
    assert heldout.perplexity([(-6.0, 2), (-3.0, 1)]) == pytest.approx(math.exp(3))


def test_jackknife_of_equal_texts_is_the_standard_error_of_the_mean() -> None:
    log_p = np.random.default_rng(0).normal(-100, 10, 25)
    items = [(float(x), 50) for x in log_p]
    expected = scipy.stats.sem(log_p / 50 / math.log(2))
    assert jackknife_stderr("bits_per_byte", items, range(25)) == pytest.approx(expected)


@pytest.mark.parametrize("metric", ["bits_per_byte", "byte_perplexity"])
def test_jackknife_agrees_with_a_bootstrap_over_documents(metric: str) -> None:
    draw = np.random.default_rng(1)
    units = draw.integers(50, 500, 80)
    log_p = -units * draw.normal(1.5, 0.2, 80)

    def statistic(i: np.ndarray) -> float:
        mean = -log_p[i].sum() / units[i].sum()
        return mean / math.log(2) if metric == "bits_per_byte" else math.exp(mean)

    boot = scipy.stats.bootstrap(
        (np.arange(80),), statistic, n_resamples=2000, vectorized=False, rng=np.random.default_rng(2), method="basic"
    )
    items = list(zip(log_p.tolist(), units.tolist(), strict=True))
    assert jackknife_stderr(metric, items, range(80)) == pytest.approx(boot.standard_error, rel=0.1)


def test_texts_of_one_document_count_as_one_observation() -> None:
    items = [(-100.0, 100), (-100.0, 100), (-180.0, 100), (-180.0, 100)]
    merged = [(-200.0, 200), (-360.0, 200)]
    expected = jackknife_stderr("bits_per_byte", merged, [0, 1])
    assert jackknife_stderr("bits_per_byte", items, [0, 0, 1, 1]) == pytest.approx(expected)
    assert jackknife_stderr("bits_per_byte", items, [7] * 4) is None

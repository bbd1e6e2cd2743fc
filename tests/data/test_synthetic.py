"""Tasks that are made: every answer is found again by a slow solver that sees the tokens alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from ablate.data import DataError, identify, open_corpus, parse, prepare
from ablate.data.sources._synthetic import BLANK, IGNORED, SyntheticCorpus, SyntheticSource, with_difficulties
from ablate.data.sources.grammar import GrammarSource
from tests.data.grammars import entropies, entropy, transitions
from zoo.settings.axis import variants

Solver = Callable[[Any, list[int], list[int]], list[int]]

SMALL: dict[str, dict[str, Any]] = {
    "addition": {"digits": [1, 3]},
    "compression": {"length": [3, 8]},
    "copying": {"length": [3, 8]},
    "fuzzy_recall": {"pairs": [2, 8]},
    "grammar": {"length": [5, 9], "states": 4, "symbols": 6},
    "induction_heads": {"length": [3, 20]},
    "memorisation": {"facts": [8, 32], "questions": 16},
    "modular_counting": {"length": [4, 9]},
    "mqar": {"pairs": [2, 8], "tokens_per_pair": [4, 7], "keys": 8, "values": 9},
    "needle": {"depth": [0, 9], "distance": [0, 1, 8]},
    "noisy_recall": {"pairs": [2, 6], "noise": [0, 3], "keys": 6, "values": 8},
    "parity": {"length": [4, 9]},
    "selective_copying": {"count": [1, 5], "length": [5, 12]},
}


def source_of(name: str, **settings: Any) -> SyntheticSource:
    source = parse({"source": name, **SMALL[name], "validation_examples": 64, **settings})
    assert isinstance(source, SyntheticSource)
    return source


def corpus_of(folder: Path, name: str, **settings: Any) -> SyntheticCorpus:
    corpus = prepare(source_of(name, **settings), folder)
    assert isinstance(corpus, SyntheticCorpus)
    return corpus


def _followers(keys: set[int]) -> Solver:
    """Solver that answers with what came after the same token before: keys are recognised by their number."""

    def solve(source: Any, tokens: list[int], asked: list[int]) -> list[int]:
        answers = []
        for place in asked:
            assert tokens[place] in keys
            answers.append(tokens[tokens.index(tokens[place]) + 1])
        return answers

    return solve


def _fuzzy(source: Any, tokens: list[int], asked: list[int]) -> list[int]:
    """Keys are maximal runs of key tokens."""
    runs = [list(run) for _, run in itertools.groupby(tokens, key=lambda token: 1 <= token <= source.keys)]
    first = {tuple(key): value[0] for key, value in reversed(list(zip(runs[::2], runs[1::2], strict=False)))}
    answers = []
    for place in asked:
        start = place
        while start and tokens[start - 1] <= source.keys:
            start -= 1
        answers.append(first[tuple(tokens[start : place + 1])])
    return answers


def _scattered(source: Any, tokens: list[int], asked: list[int]) -> list[int]:
    return [token for token in tokens if token > 1]


def _digits(source: Any, tokens: list[int], asked: list[int]) -> list[int]:
    plus, equals = tokens.index(11), tokens.index(12)
    step = -1 if source.reverse else 1
    a, b = (int("".join(str(t - 1) for t in part[::step])) for part in (tokens[:plus], tokens[plus + 1 : equals]))
    return [1 + int(digit) for digit in f"{a + b:0{plus + 1}d}"[::step]]


def _counted(source: Any, tokens: list[int], asked: list[int]) -> list[int]:
    return [1 + source.base + sum(t - 1 for t in tokens[: place + 1]) % source.base for place in asked]


SOLVERS: dict[str, Solver] = {
    "addition": _digits,
    "compression": _scattered,
    "copying": lambda source, tokens, asked: tokens[: tokens.index(1)],
    "fuzzy_recall": _fuzzy,
    "induction_heads": _followers({1}),
    "modular_counting": _counted,
    "mqar": _followers(set(range(1, 9))),
    "needle": _followers(set(range(1, 17))),
    "noisy_recall": _followers(set(range(1, 7))),
    "parity": _counted,
    "selective_copying": _scattered,
}


def examples(source: SyntheticSource, count: int = 40) -> Iterator[tuple[dict[str, int], list[int], list[int]]]:
    draw = np.random.default_rng(0)
    for level in source.levels():
        for _ in range(count):
            tokens, targets = source.example(level, draw)
            yield level, tokens.tolist(), targets.tolist()


def test_every_source_is_tried() -> None:
    made = {name for name, cls in variants("ablate.data.sources", "source").items() if issubclass(cls, SyntheticSource)}
    assert set(SMALL) == made == set(SOLVERS) | {"grammar", "memorisation"}


@pytest.mark.parametrize("name", SMALL)
def test_examples_are_what_their_source_says(name: str) -> None:
    source = source_of(name)
    for level, tokens, targets in examples(source):
        assert len(tokens) == len(targets) <= source.tokens_of(level)
        assert all(0 <= token < source.vocab_size for token in tokens)
        assert any(target != IGNORED for target in targets)
        assert all(target == IGNORED or BLANK < target < source.vocab_size for target in targets)


@pytest.mark.parametrize("name", SOLVERS)
def test_answers_follow_from_what_is_read(name: str) -> None:
    source = source_of(name)
    for _, tokens, targets in examples(source):
        asked = [place for place, target in enumerate(targets) if target != IGNORED]
        assert SOLVERS[name](source, tokens, asked) == [targets[place] for place in asked]


def test_addition_may_be_written_as_people_do() -> None:
    source = source_of("addition", reverse=False)
    for _, tokens, targets in examples(source):
        assert _digits(source, tokens, []) == [target for target in targets if target != IGNORED]


def test_facts_are_the_same_everywhere() -> None:
    source = source_of("memorisation")
    facts: dict[int, set[int]] = {}
    for _, tokens, targets in examples(source):
        for key, value in zip(tokens, targets, strict=True):
            facts.setdefault(key, set()).add(value)
    assert len(facts) == 32
    assert all(len(values) == 1 for values in facts.values())


@pytest.mark.parametrize("name", ["mqar", "noisy_recall", "fuzzy_recall"])
def test_saying_a_value_that_was_seen_scores_chance(name: str) -> None:
    """One value is right for one question; there are as many questions as pairs."""
    source = source_of(name)
    for level, _, targets in examples(source, 5):
        answers = [target for target in targets if target != IGNORED]
        assert len(set(answers)) == len(answers) == level["pairs"]
        assert source.chance(level) == 1 / level["pairs"]


def test_queries_come_back_by_a_power_law() -> None:
    """P(gap g) ∝ g^(a − 1), without replacement: with one pair the first slot has its share of the weights."""
    source = parse({"source": "mqar", "pairs": 1, "tokens_per_pair": 18, "power": 0.5, "keys": 3, "values": 3})
    assert isinstance(source, SyntheticSource)
    draw = np.random.default_rng(1)
    places = [int(np.flatnonzero(source.example(source.levels()[0], draw).targets != IGNORED)[0]) for _ in range(4000)]
    weights = [gap**-0.5 for gap in range(1, 9)]
    for slot, weight in enumerate(weights):
        expected = weight / sum(weights)
        assert places.count(2 + 2 * slot) / 4000 == pytest.approx(expected, abs=4 * math.sqrt(expected / 4000))


@pytest.mark.parametrize("name", SMALL)
def test_a_corpus_is_a_pure_function(name: str, tmp_path: Path) -> None:
    corpus, again = (corpus_of(tmp_path / folder, name) for folder in "ab")
    for step in range(3):
        first, second = (each.batch(step, batch=4, context=128, seed=1) for each in (corpus, again))
        np.testing.assert_array_equal(first.tokens, second.tokens)
        np.testing.assert_array_equal(first.targets, second.targets)
        assert first.tokens.size == first.targets.size == 4 * 128
    for part in ("tuning", "judging", "test"):
        held_out = corpus.held_out_rows(part, 128)
        assert all(found.sizes is None for found in held_out)
        assert sum(len(found.rows) for found in held_out) == 64
        items = [item for found in held_out for item in found.items[:, 0].tolist()]
        assert items == list(range(64))


def test_splits_seeds_and_steps_differ(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "copying", length=16)
    seen = [corpus.batch(step, batch=32, context=32, seed=seed) for step in range(3) for seed in range(3)]
    seen += [found.rows for part in ("tuning", "judging", "test") for found in corpus.held_out_rows(part, 32)]
    tokens = [each.tokens for each in seen]
    tokens += [question.tokens for seed in range(2) for question in corpus.questions({}, 32, seed)]
    rows = [tuple(row) for each in tokens for row in each.tolist()]
    assert len(set(rows)) == len(rows)


def test_a_step_has_one_difficulty_and_as_many_tokens(tmp_path: Path) -> None:
    """Lengths 3, 20, 64 in a context of 96: rows of 6 (96 halved four times), 24 and 96."""
    source = parse({"source": "induction_heads", "length": [3, 20, 64]})
    corpus = prepare(source, tmp_path)
    assert source.widths(96) == (3, 24, 96)
    shapes = [corpus.batch(step, batch=2, context=96, seed=0).tokens.shape for step in range(4)]
    assert shapes == [(64, 3), (8, 24), (2, 96), (64, 3)]


def test_a_digest_names_what_is_made(tmp_path: Path) -> None:
    digests = [
        identify(parse({"source": "copying", **settings})).digest
        for settings in ({}, {"length": [4, 8]}, {"symbols": 15}, {"length": 4}, {"length": [4]})
    ]
    assert len(set(digests)) == 4
    assert digests[3] == digests[4]
    corpus = prepare(parse("copying"), tmp_path)
    assert corpus.digest == digests[0] == open_corpus(corpus.directory).digest


def test_other_difficulties_are_asked_of_the_same_task() -> None:
    source = source_of("copying")
    assert with_difficulties(source, {"length": [32, 64]}).levels() == ({"length": 32}, {"length": 64})
    with pytest.raises(DataError, match=r"^lenth is not a difficulty of copying \(did you mean 'length'\?\)$"):
        with_difficulties(source, {"lenth": [3]})
    with pytest.raises(DataError, match="symbols is not a difficulty of copying: length"):
        with_difficulties(source, {"symbols": [3]})
    with pytest.raises(DataError, match="9 pairs need at least as many keys and values"):
        with_difficulties(source_of("mqar"), {"pairs": [9]})
    with pytest.raises(DataError, match="needs a vocabulary of 1065 tokens, but the model's has 97"):
        with_difficulties(source_of("memorisation"), {"facts": [1000]})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"source": "mqar", "pairs": [4, 300]}, "300 pairs need at least as many keys and values"),
        ({"source": "mqar", "tokens_per_pair": 3}, "tokens_per_pair must be at least 4"),
        ({"source": "selective_copying", "count": 9, "length": 8}, "9 symbols do not fit into a length of 8"),
        ({"source": "grammar", "branching": 17}, "branching (17) must not exceed symbols (16)"),
        ({"source": "fuzzy_recall", "pairs": 17}, "17 pairs need at least as many keys and values"),
    ],
)
def test_what_cannot_be_made_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError) as error:
        parse(settings)
    assert reason in str(error.value)


def small_grammar() -> GrammarSource:
    source = parse({"source": "grammar", "states": 3, "symbols": 3, "branching": 2, "length": 6})
    assert isinstance(source, GrammarSource)
    return source


def sentences(source: GrammarSource, length: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every sentence that the rules allow, and its probability, one rule at a time."""
    rules = source.rules

    def grown(said: tuple[int, ...], p: float, state: int) -> Iterator[tuple[tuple[int, ...], float]]:
        if len(said) == length:
            yield said, p
            return
        for symbol, chance, following in zip(*(part[state].tolist() for part in rules), strict=True):
            yield from grown((*said, symbol), p * chance, following)

    yield from grown((), 1.0, 0)


@pytest.mark.parametrize("length", [1, 2, 6, 10])
def test_the_entropy_is_that_of_all_sentences(length: int) -> None:
    """−Σ p ln p over the enumerated sentences, each of which has one derivation."""
    source = small_grammar()
    known = dict(sentences(source, length))
    assert len(known) == 2**length
    assert sum(known.values()) == pytest.approx(1)
    assert entropy(source, length) == pytest.approx(-sum(p * math.log(p) for p in known.values()) / length)


def test_the_entropy_rate_is_the_limit() -> None:
    """The entropy rate is the limit of the entropy per symbol as sentences become long."""
    source = small_grammar()
    known = source.rules  # nats per symbol of an infinite sentence: Σₛ π(s) H(s), π being the stationary distribution
    balance = np.vstack((transitions(known).T - np.eye(source.states), np.ones(source.states)))
    stationary = np.linalg.lstsq(balance, np.append(np.zeros(source.states), 1.0), rcond=None)[0]
    assert entropy(source, 20_000) == pytest.approx(stationary @ entropies(known), rel=1e-3)


def test_sentences_come_as_often_as_they_should_and_pay_their_surprisal() -> None:
    source, draw, count = small_grammar(), np.random.default_rng(0), 4000
    known = dict(sentences(source, 6))
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(count):
        example = source.example({"length": 6}, draw)
        said = tuple((example.targets - 2).tolist())
        assert source.floor({"length": 6}, example).sum() == pytest.approx(-math.log(known[said]))
        seen[said] = seen.get(said, 0) + 1
    for said, p in known.items():
        assert seen.get(said, 0) / count == pytest.approx(p, abs=4.5 * math.sqrt(p / count))


def test_only_a_language_has_a_floor(tmp_path: Path) -> None:
    """The floor of what validates: near the entropy, of which it is a sample."""
    corpus = corpus_of(tmp_path, "grammar", length=64, validation_examples=256)
    floor = corpus.floor("test")
    assert isinstance(corpus.source, GrammarSource)
    assert floor == pytest.approx(entropy(corpus.source, 64), rel=0.03)
    assert corpus_of(tmp_path, "parity").floor("test") is None

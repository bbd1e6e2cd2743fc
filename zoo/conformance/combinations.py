"""Specs for the conformance suite: covering arrays of the choices in `zoo.conformance.matrix`."""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch

import zoo
from zoo.conformance import matrix
from zoo.conformance.matrix import AxisOption
from zoo.site import Given

Row = Mapping[str, AxisOption]
Met = frozenset[AxisOption]


@functools.cache
def choices() -> dict[str, tuple[AxisOption, ...]]:
    """The choices of the matrix, keyed by axis, and the default of every setting."""
    kinds = ("norm", "norm_placement", "mixer", "mixer.position", "ffn")
    plain = {axis: () if axis in kinds else (AxisOption(axis, "default", {}),) for axis in matrix.axes()}
    return {axis: (*plain[axis], *of) for axis, of in matrix.axes().items()}


@functools.cache
def legal(strength: int, axes: tuple[str, ...]) -> frozenset[Met]:
    """All sets of `strength` choices on different axes that can be combined, with all else at its default."""
    return frozenset(
        frozenset(chosen)
        for some in itertools.combinations(axes, strength)
        for chosen in itertools.product(*(choices()[axis] for axis in some))
        if matrix.conflict(*chosen) is None
    )


@functools.cache
def covering(strength: int = 2, axes: tuple[str, ...] | None = None) -> list[Row]:
    """Covering array: rows of choices that contain every set of `strength` choices that can be combined.

    Greedy: a row starts from a set that no row contains yet and adds, axis by axis, the choice that completes most of
    these sets. An axis without a choice that fits the row is left out. First come rows that cover all sets of
    `paired` choices, then the rest.
    """
    axes = axes or tuple(choices())
    wanted = legal(strength, axes)
    rows = _covered(paired(wanted), axes, strength)
    met = {frozenset(some) for row in rows for some in itertools.combinations(row.values(), strength)}
    rows += _covered(wanted - met, axes, strength)
    # Costly choices become the axis's first option in rows whose sets with them all occur elsewhere.
    for axis, of in choices().items():
        if any(option.costly for option in of):
            times = Counter(itertools.chain(*(_with(axis, row, strength) for row in rows)))
            for row in reversed(rows):
                own = _with(axis, row, strength)
                if own and all(times[some] > 1 for some in own):
                    times.subtract(own)
                    row[axis] = of[0]
    return list(rows)


def paired(wanted: Iterable[Met]) -> list[Met]:
    """The sets whose choices are all `paired`."""
    return [met for met in wanted if all(option.paired for option in met)]


def covering_kind(options: Sequence[AxisOption]) -> list[Row]:
    """Rows in which every choice of the other axes meets one of these options, which take turns: a kind with twenty
    options does not need twenty times as many rows as one with a single option."""
    pairs = list[Met]()
    for other in itertools.chain(*choices().values()):
        if fitting := [option for option in options if other in _partners(option)]:
            pairs.append(frozenset((fitting[len(pairs) % len(fitting)], other)))
    return list(_covered(pairs, tuple(choices()), 2))


def _covered(wanted: Collection[Met], axes: tuple[str, ...], strength: int) -> list[dict[str, AxisOption]]:
    rng = random.Random(0)
    unmet = _Unmet(wanted, strength)
    rows: list[dict[str, AxisOption]] = []
    while unmet.left:
        start = next(iter(unmet.left))
        # In pairs is fast, and nearly always right for the row as a whole.
        row = _row(start, axes, unmet, rng, lambda row, option: _partners(option).issuperset(row))
        if matrix.conflict(*row.values()) is not None:
            row = _row(start, axes, unmet, rng, lambda row, option: matrix.conflict(*row, option) is None)
        unmet.meet(row.values())
        rows.append(row)
    return rows


class _Unmet:
    """Sets of `strength` choices that no row contains yet."""

    def __init__(self, wanted: Collection[Met], strength: int) -> None:
        self.left = dict.fromkeys(sorted(wanted, key=lambda met: sorted(map(str, met))))
        self._fewer = strength - 1
        self._lacks: defaultdict[Met, set[AxisOption]] = defaultdict(set)
        """Options that would complete each set of `strength` − 1 choices; there are fewer such sets to look up."""
        for met in self.left:
            for option in met:
                self._lacks[met - {option}].add(option)

    def meet(self, row: Collection[AxisOption]) -> None:
        options = set(row)
        for some in map(frozenset, itertools.combinations(row, self._fewer)):
            for option in self._lacks[some] & options:
                self.left.pop(some | {option}, None)
            self._lacks[some] -= options

    def gains(self, row: Collection[AxisOption], candidates: Iterable[AxisOption]) -> dict[AxisOption, int]:
        """Number of unmet sets that each candidate would complete, times `strength` − 1: each set is met as often."""
        options, fewest = set(row), [frozenset(some) for some in itertools.combinations(row, self._fewer - 1)]
        return {each: sum(len(self._lacks[some | {each}] & options) for some in fewest) for each in candidates}


def _with(axis: str, row: Row, strength: int) -> list[Met]:
    """Sets of a row's choices that include its choice on an axis, if that is costly; else none."""
    if axis not in row or not row[axis].costly:
        return []
    others = (option for other, option in row.items() if other != axis)
    return [frozenset((row[axis], *some)) for some in itertools.combinations(others, strength - 1)]


@functools.cache
def opening(share: float = 0.75) -> list[int]:
    """Numbers of a few rows of the pairwise array that have every choice among them, and `share` of the combinable
    pairs of `paired` choices: greedily, always the row with most choices that none has yet, the first of equals."""
    rows, wanted = covering(), set(itertools.chain(*choices().values()))
    left, found = set(paired(legal(2, tuple(choices())))), list[int]()
    spare = (1 - share) * len(left)
    while wanted or len(left) > spare:
        others = (number for number in range(len(rows)) if number not in found)
        found.append(max(others, key=lambda number: len(wanted.intersection(rows[number].values()))))
        wanted.difference_update(rows[found[-1]].values())
        left.difference_update(map(frozenset, itertools.combinations(rows[found[-1]].values(), 2)))
    return found


Fits = Callable[[Collection[AxisOption], AxisOption], bool]
"""Whether a choice can be combined with those of a row."""


@functools.cache
def _partners(option: AxisOption) -> frozenset[AxisOption]:
    others = itertools.chain(*(of for axis, of in choices().items() if axis != option.axis))
    return frozenset(other for other in others if matrix.conflict(option, other) is None)


def _row(start: Met, axes: tuple[str, ...], unmet: _Unmet, rng: random.Random, fits: Fits) -> dict[str, AxisOption]:
    row = {option.axis: option for option in start}
    for axis in (axis for axis in rng.sample(axes, len(axes)) if axis not in row):
        candidates = list(choices()[axis])
        rng.shuffle(candidates)
        gains = unmet.gains(row.values(), candidates)
        candidates.sort(key=lambda option: -gains[option])
        best = next((option for option in candidates if fits(row.values(), option)), None)
        if best is not None:
            row[axis] = best
    return row


MATRICES = ("embedding", "input", "output", "head")
LARGEST, HALVINGS = 1e4, 10
"""Largest absolute value in a random model's residual stream, and how often its matrices may be halved to reach it."""


def random_model(spec: zoo.ModelSpec, seed: int = 0) -> zoo.Decoder:
    """A model in which every parameter is random: zero-initialised ones would hide the values that they multiply.

    Matrices have std 0.7/√fan_in, so that activations stay of order one: with caps, or without norms, larger ones would
    leave nothing to compare. Other parameters are their initial values plus noise.

    A branch that reads an unnormalised stream can square it (gated FFNs do), and the next branch again, up to infinity.
    The matrices of such a model are halved, at most `HALVINGS` times, until its stream stays within `LARGEST`.
    """
    model = zoo.build(spec, seed)
    roles = zoo.roles(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if roles[name] in MATRICES:
                parameter.copy_(0.7 * parameter.shape[-1] ** -0.5 * noise)
            else:
                parameter.add_(0.3 * noise)
        model.eval()
        short, told = random_tokens(spec, 1, 8), given_to(spec, 1, 8)
        bounded = all(layer.norm.normalises and layer.norm_placement.normalises_branch for layer in spec.layers)
        for _ in range(0 if bounded else HALVINGS):
            if model.stream(short, **told).abs().max() <= LARGEST:  # false for NaN
                break
            for name, parameter in model.named_parameters():
                if roles[name] in MATRICES:
                    parameter.div_(2)
    return model


PREFIX, ENCODED = 5, 11
"""Numbers of tokens in the prefix and in the encoder's text, if a model has them."""


def given_to(spec: zoo.ModelSpec, batch: int, length: int, prefix: int = PREFIX) -> Given:
    """Inputs of a forward pass beside its tokens: prefix lengths, token types, encoder tokens."""
    given = Given()
    if spec.visible == "prefix":
        given["prefix"] = torch.full((batch,), prefix)
    if spec.token_types is not None:
        given["token_types"] = torch.arange(batch * length).view(batch, length) // 2 % spec.token_types
    if spec.encoder is not None:
        given["encoder_tokens"] = random_tokens(spec, batch, ENCODED, seed=1)
    return given


def of_rows(given: Given, rows: slice, start: int = 0) -> Given:
    """The inputs of some rows, without their first `start` tokens."""
    return cast(Given, {k: cast(torch.Tensor, v)[rows] for k, v in given.items()} | _cut(given, rows, start, None))


def of_chunk(given: Given, start: int, length: int) -> Given:
    """The inputs of one chunk of a pass with a cache. Inputs that are not per token go with the first chunk only."""
    cut = _cut(given, slice(None), start, start + length)
    return cast(Given, cut if start else {**given, **cut})


def _cut(given: Given, rows: slice, start: int, end: int | None) -> Given:
    return Given(token_types=given["token_types"][rows, start:end]) if "token_types" in given else Given()


def random_tokens(spec: zoo.ModelSpec, batch: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, spec.vocab_size, (batch, length), generator=torch.Generator().manual_seed(seed))


def held_by(part: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a cache, once."""
    if isinstance(part, torch.Tensor):
        yield part
    elif isinstance(part, dict | list | tuple):
        yield from (tensor for x in (part.values() if isinstance(part, dict) else part) for tensor in held_by(x))
    elif type(part).__module__.startswith(("zoo.caching", "zoo.caches")):
        yield from held_by(vars(part))

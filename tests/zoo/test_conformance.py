"""What every model must do, whatever it is made of."""

from __future__ import annotations

import copy
import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import zoo
from tests.zoo.combinations import (
    CORE,
    ENCODED,
    PREFIX,
    choices,
    covering,
    given_to,
    held_by,
    legal,
    of_chunk,
    of_rows,
    opening,
    random_model,
    random_tokens,
)
from tests.zoo.counting import counted, fused_kernels_as_products
from zoo.cache import Cache
from zoo.cache_kinds import cache_kind
from zoo.matrix import Option, combine
from zoo.mixers._linear import Stateful
from zoo.residuals.normed import NormedLayer
from zoo.site import Given

SPECS = [combine(row.values()) for row in covering()]
LENGTH = 19
KINDS = (
    {"kind": "int8", "group": 4},
    {"kind": "int4", "group": 5},
    {"kind": "sink", "sinks": 2, "recent": 5},
    {"kind": "paged", "page": 4},
)
CHUNKS = ([6, 1, 1, 9, 2], [1] * LENGTH, [LENGTH], [2, 17])
PADDED_CHUNKS = ([8, 1, 1, 6, 3], [LENGTH])
"""How a text is cut for a cache: the first way for every spec, the others for thorough ones."""
PARTS = 16
"""Of the slow suite, so that it can run side by side."""


class Subject:
    """A spec, and the model that its tests share: none of them changes it.

    `thorough` adds what differs little between specs.
    """

    def __init__(self, spec: zoo.ModelSpec, thorough: bool = True) -> None:
        self.spec, self.thorough = spec, thorough

    @functools.cached_property
    def model(self) -> zoo.Decoder:
        return random_model(self.spec)

    @functools.cached_property
    def double(self) -> zoo.Decoder:
        """The same model in float64."""
        return copy.deepcopy(self.model).double()

    def read(self, batch: int, length: int = LENGTH, prefix: int = PREFIX) -> tuple[torch.Tensor, Given]:
        """Tokens, and what a pass over them is told beside them."""
        return random_tokens(self.spec, batch, length), given_to(self.spec, batch, LENGTH, prefix)


def digest(number: int) -> str:
    return SPECS[number].digest[:6]


OPENING = range(opening())
"""The specs tried by default. The slow suite tries the others, of which each brings few new pairs together."""


def with_new_choices() -> Iterator[int]:
    """The specs that are the first to have some choice."""
    met: set[Option] = set()
    for number in OPENING:
        if not met.issuperset(covering()[number].values()):
            met.update(covering()[number].values())
            yield number


THOROUGH = frozenset(with_new_choices()).union(range(len(OPENING), len(SPECS)))
NUMBERS = [
    pytest.param(number, id=digest(number), marks=() if number in OPENING else pytest.mark.slow)
    for number in range(len(SPECS))
]


@pytest.fixture(scope="module", params=NUMBERS)
def subject(request: pytest.FixtureRequest) -> Subject:
    """Of the module, so that pytest runs all tests of a spec in a row."""
    return Subject(SPECS[request.param], request.param in THOROUGH)


def test_nine_in_ten_pairs_meet_by_default_and_the_others_in_the_slow_suite() -> None:
    """And every choice is tried by default with two specs, and with one thoroughly."""
    slow = {param.values[0] for param in NUMBERS if param.marks}
    default = {param.values[0] for param in NUMBERS} - slow
    rows = covering()
    times = Counter(option for number in default for option in rows[number].values())
    assert all(times[option] >= 2 for option in itertools.chain(*choices().values()))
    met = {frozenset(pair) for number in default for pair in itertools.combinations(rows[number].values(), 2)}
    possible = legal(2, tuple(choices()))
    assert len(met & possible) >= 0.9 * len(possible)
    assert sorted(default | slow) == list(range(len(rows)))
    tried = {option for number in default & THOROUGH for option in rows[number].values()}
    assert tried == set(itertools.chain(*choices().values()))


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal to 1e-5 of the largest logit.

    Models are compared in float64: in float32 a deep stack of random layers can make more than that of rounding. What
    is always float32, as norms and routers are, still rounds.
    """
    assert actual.shape == expected.shape
    assert (actual - expected).abs().max() <= 5e-5 * max(1.0, expected.abs().max().item())


def has_experts(spec: zoo.ModelSpec) -> bool:
    return any(layer.ffn.cost(spec.d_model).inactive for layer in spec.layers)


@torch.no_grad()
def test_logits_have_the_declared_shape(subject: Subject) -> None:
    tokens, given = subject.read(2)
    logits = subject.model(tokens, **given)
    assert logits.shape == (2, LENGTH, subject.spec.vocab_size)
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()


@torch.no_grad()
def test_no_token_sees_the_future(subject: Subject) -> None:
    """Beyond a prefix, where the model has one; where it sees all, a change is seen by all."""
    spec, model, (tokens, given) = subject.spec, subject.model, subject.read(1)
    before = model(tokens, **given)
    # A product over another number of rows may round differently, and who else chose an expert decides how many it has.
    slack = 1e-5 if has_experts(spec) else 0.0
    moves = not all(layer.mixer.absent for layer in spec.layers)  # else nothing passes between tokens
    for changed in (0, 7, LENGTH - 1):
        other = tokens.clone()
        other[0, changed] = (other[0, changed] + 1) % spec.vocab_size
        after = model(other, **given)
        ahead = moves and (spec.visible == "all" or (spec.visible == "prefix" and changed < PREFIX))
        blind = slice(0, 0 if ahead else changed)
        torch.testing.assert_close(after[:, blind], before[:, blind], rtol=0, atol=slack * before.abs().max().item())
        seeing = slice(0, PREFIX if spec.visible == "prefix" else LENGTH) if ahead else slice(changed, changed + 1)
        assert (after != before).any(dim=-1)[:, seeing].all()


def test_every_parameter_gets_a_gradient(subject: Subject) -> None:
    """In one draw of four: of a gated unit, whose scores go through a ReLU, all may be negative in some."""
    silent = silent_parameters(subject.spec, 0)
    for seed in (1, 2, 3):
        silent = silent and silent & silent_parameters(subject.spec, seed)
    assert not silent


def silent_parameters(spec: zoo.ModelSpec, seed: int) -> set[str]:
    """Those without a gradient that could have one."""
    model, tokens = random_model(spec, seed).train(), random_tokens(spec, 2, LENGTH + 1)
    model.loss(tokens[:, :-1], tokens[:, 1:], **given_to(spec, 2, LENGTH))[0].backward()
    silent = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    return {name for name in silent if not is_invisible(name, model)}


def is_invisible(name: str, model: zoo.Decoder) -> bool:
    """Whether a parameter may have exactly zero gradient.

    A constant added to every key of a head shifts all of its scores alike, which softmax does not see, without
    positions or a norm after it. One gain for the whole stream is divided out by the norm that follows, and so is one
    before a branch that keeps scales (a mixer of normed queries and keys, ReLU without biases). In the first layer, and
    in a module of multi-token prediction, values are mixed with themselves, which scales the mixer's output, and a norm
    of the output does not see a scale, or changes nothing.
    """
    blind = ("mixer.k.bias", "blocks.0.mixer.values.weights", "block.mixer.values.weights")
    alone = ("blocks.0.mixer.value_mix.", "block.mixer.value_mix.")
    return (
        name.endswith(blind)
        or any(part in name for part in alone)
        or (model.get_parameter(name).numel() == 1 and _is_normed_after(name, model))
    )


def _is_normed_after(name: str, model: zoo.Decoder) -> bool:
    """Whether a gain of the stream, or of what a branch reads, is followed by another norm."""
    path, _, norm = name.removesuffix(".gain").rpartition(".")
    if norm != "norm_in":
        return norm in ("embedding_norm", "norm_after")
    residual = model.get_submodule(path)
    is_stream = isinstance(residual, NormedLayer)  # the shortcut too comes after this norm, and before the next
    return is_stream or not isinstance(getattr(residual, "norm_out", None), torch.nn.Identity | None)


def test_cached_decoding_equals_the_uncached_forward(subject: Subject) -> None:
    if subject.spec.visible == "all":
        with pytest.raises(ValueError, match="reads a text in one pass: there is nothing to cache"):
            subject.model.new_cache(batch=2, capacity=LENGTH)
        return
    for chunks in CHUNKS if subject.thorough else CHUNKS[:1]:
        cached_equals_uncached(subject, chunks)


def cached_equals_uncached(subject: Subject, chunks: list[int]) -> None:
    model = subject.double
    tokens, given = subject.read(2, prefix=min(PREFIX, chunks[0]))
    cache = model.new_cache(batch=2, capacity=LENGTH, encoder_capacity=ENCODED)
    with torch.no_grad():
        assert_same(read_in(model, tokens, chunks, cache, given), model(tokens, **given))


def test_left_padding_changes_nothing(subject: Subject) -> None:
    spec, model, pads = subject.spec, subject.double, [0, 3, 7]
    left_pad, (tokens, given) = torch.tensor(pads), subject.read(3, prefix=1)
    with torch.no_grad():
        found = [model(tokens, left_pad=left_pad, **given)]
        for chunks in () if spec.visible == "all" else PADDED_CHUNKS if subject.thorough else PADDED_CHUNKS[:1]:
            cache = model.new_cache(batch=3, capacity=LENGTH)
            found.append(read_in(model, tokens, chunks, cache, given, left_pad))
        for row, pad in enumerate(pads):
            alone = model(tokens[row : row + 1, pad:], **of_rows(given, slice(row, row + 1), pad))[0]
            for logits in found:
                assert_same(logits[row, pad:], alone)


def test_padding_at_the_right_changes_nothing(subject: Subject) -> None:
    """Where tokens see all of the text: of the model, or of its encoder."""
    spec, model, pads = subject.spec, subject.double, [0, 2, 6]
    right_pad, (tokens, given) = torch.tensor(pads), subject.read(3)
    with torch.no_grad():
        if spec.visible == "all":
            padded = model(tokens, right_pad=right_pad, **given)
        elif spec.encoder is not None:
            padded = model(tokens, encoder_right_pad=right_pad, **given)
        else:
            with pytest.raises(ValueError, match="right_pad is for models with visible: all"):
                model(tokens, right_pad=right_pad)
            return
        for row, pad in enumerate(pads):
            own = of_rows(given, slice(row, row + 1))
            end = LENGTH - pad if spec.visible == "all" else LENGTH
            if "token_types" in own:
                own["token_types"] = own["token_types"][:, :end]
            if "encoder_tokens" in own:
                own["encoder_tokens"] = own["encoder_tokens"][:, : ENCODED - pad]
            assert_same(padded[row, :end], model(tokens[row : row + 1, :end], **own)[0])


def test_a_row_does_not_depend_on_its_batch(subject: Subject) -> None:
    tokens, given = subject.read(3)
    with torch.no_grad():
        together = subject.double(tokens, **given)
        for row in range(3):
            rows = slice(row, row + 1)
            assert_same(together[row], subject.double(tokens[rows], **of_rows(given, rows))[0])


def test_declared_parameters_are_those_counted(subject: Subject) -> None:
    model, cost = subject.model, zoo.cost(subject.spec)
    assert cost.params == sum(p.numel() for p in model.parameters())
    stacks = [model, *([model.encoder] if model.encoder is not None else [])]
    tables = [
        stack.positions[str(i)]
        for stack in stacks
        for i, (scheme, _) in enumerate(stack.spec.positions)
        if scheme.absolute
    ]
    tables += list(model.value_embeddings.tables) if model.value_embeddings is not None else []
    tables += [model.embedding, *([model.token_types] if model.token_types is not None else [])]
    assert cost.params_embedding == sum(p.numel() for table in tables for p in table.parameters())


def test_declared_flops_are_those_counted(subject: Subject) -> None:
    """Forward and backward: those executed with the backends that are chosen, and, where no layer computes a recurrence
    by chunks, whole score matrices with the plain one."""
    spec, model = subject.spec, random_model(subject.spec).train()
    declared = zoo.cost(spec, context=LENGTH, encoder_context=ENCODED)
    with fused_kernels_as_products():
        assert training_flops(model) == pytest.approx(declared.flops_per_token_executed, rel=1e-9)
    if subject.thorough and not any(isinstance(layer.mixer, Stateful) for layer in spec.layers):
        with zoo.attention_backend("plain"):
            assert training_flops(model) == pytest.approx(declared.flops_per_token_square, rel=1e-9)
    assert declared.flops_per_token <= declared.flops_per_token_square


def training_flops(model: zoo.Decoder) -> float:
    """Of a step, per token."""
    tokens, given = Subject(model.spec).read(2, LENGTH + 1)
    with counted(model, passes=3) as count:
        model.loss(tokens[:, :-1], tokens[:, 1:], **given)[0].backward()
    return count.total / (2 * LENGTH)


def test_declared_cache_bytes_are_those_allocated(subject: Subject) -> None:
    spec = subject.spec
    for dtype in (torch.float32, torch.bfloat16):
        declared = zoo.cost(spec).cache_bytes(batch=3, context=23, dtype=dtype, encoder_context=7)
        if spec.visible == "all":
            assert declared == 0, dtype
        else:
            cache = subject.model.new_cache(batch=3, capacity=23, dtype=dtype, encoder_capacity=7)
            held = sum(t.untyped_storage().nbytes() for t in held_by(cache.layers))
            assert cache.nbytes == declared == held, dtype


def test_save_and_open_keep_the_model(subject: Subject, tmp_path: Path) -> None:
    tokens, given = subject.read(2)
    zoo.save(subject.model, tmp_path)
    again = zoo.open(tmp_path)
    assert again.spec == subject.spec
    with torch.no_grad():
        torch.testing.assert_close(again(tokens, **given), subject.model(tokens, **given), rtol=0, atol=0)


def test_dump_and_parse_are_inverse(subject: Subject) -> None:
    again = zoo.parse(subject.spec.dump())
    assert again == subject.spec
    assert again.digest == subject.spec.digest


def test_training_in_bfloat16_stays_near_float32(subject: Subject) -> None:
    """To 5 % of the largest logit, of which rounding takes a share: without norms, logits can be of any size."""
    model, (tokens, given) = subject.model, subject.read(2, LENGTH + 1)
    exact = model.loss(tokens[:, :-1], tokens[:, 1:], **given)[1]
    with torch.autocast("cpu", torch.bfloat16):
        rough = model.loss(tokens[:, :-1], tokens[:, 1:], **given)[1]
    largest = model(tokens[:, :-1], **given).abs().max().item()
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), abs=0.05 * largest)


@pytest.mark.parametrize("subject", [NUMBERS[number] for number in sorted(THOROUGH)], indirect=True)
def test_a_kind_of_cache_keeps_what_it_says(subject: Subject) -> None:
    """One kind for each of these specs, all of them in the slow suite."""
    cache_conforms(subject, KINDS[int(subject.spec.digest, 16) % len(KINDS)])


def cache_conforms(subject: Subject, kind: dict[str, object]) -> None:
    """Its bytes are those declared; how a text is cut changes nothing, and pages are as good as the plain cache."""
    spec, model, (tokens, given) = subject.spec, subject.double, subject.read(2)
    if spec.visible == "all":
        return
    try:
        caches = [model.new_cache(2, LENGTH, encoder_capacity=ENCODED, kind=cache_kind(kind)) for _ in range(2)]
    except zoo.UnsupportedError as error:
        assert error.reason
        return
    first = PREFIX if "prefix" in given else 1
    with torch.no_grad():
        found = read_in(model, tokens, CHUNKS[0], caches[0], given)
        assert_same(found, read_in(model, tokens, [first] + [1] * (LENGTH - first), caches[1], given))
        if kind["kind"] == "paged":
            assert_same(found, model(tokens, **given))
    declared = zoo.cost(spec).cache_bytes(2, LENGTH, torch.float64, ENCODED, cache=cache_kind(kind))
    assert [cache.nbytes for cache in caches] == [declared, declared]


def read_in(
    model: zoo.Decoder,
    tokens: torch.Tensor,
    chunks: list[int],
    cache: Cache,
    given: Given,
    left_pad: torch.Tensor | None = None,
) -> torch.Tensor:
    """Logits of a text read in these chunks."""
    starts = itertools.accumulate(chunks, initial=0)
    parts = [
        model(chunk, cache, None if start else left_pad, **of_chunk(given, start, chunk.shape[1]))
        for chunk, start in zip(tokens.split(chunks, dim=1), starts, strict=False)
    ]
    return torch.cat(parts, dim=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_three_core_choices_conform(part: int, tmp_path: Path) -> None:
    for number, row in enumerate(covering(3, CORE)[part::PARTS]):
        spec = combine(row.values())
        folder = tmp_path / str(number)
        folder.mkdir()
        conforms(spec, folder)


def conforms(spec: zoo.ModelSpec, folder: Path) -> None:
    """The whole suite on one spec."""
    subject = Subject(spec)
    test_logits_have_the_declared_shape(subject)
    test_no_token_sees_the_future(subject)
    test_every_parameter_gets_a_gradient(subject)
    test_cached_decoding_equals_the_uncached_forward(subject)
    test_left_padding_changes_nothing(subject)
    test_padding_at_the_right_changes_nothing(subject)
    test_a_row_does_not_depend_on_its_batch(subject)
    test_declared_parameters_are_those_counted(subject)
    test_declared_flops_are_those_counted(subject)
    test_declared_cache_bytes_are_those_allocated(subject)
    for kind in KINDS:
        cache_conforms(subject, kind)
    test_save_and_open_keep_the_model(subject, folder)
    test_dump_and_parse_are_inverse(subject)
    test_training_in_bfloat16_stays_near_float32(subject)

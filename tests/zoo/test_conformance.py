"""What every model must do, whatever it is made of."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

import zoo
from tests.zoo.combinations import (
    CORE,
    ENCODED,
    PREFIX,
    covering,
    given_to,
    held_by,
    of_chunk,
    of_rows,
    random_model,
    random_tokens,
)
from tests.zoo.counting import counted, fused_kernels_as_products
from zoo.cache import Cache
from zoo.cache_kinds import cache_kind
from zoo.matrix import combine
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
PARTS = 16
"""Of the slow suite, so that it can run side by side."""
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.digest[:6])


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal to 1e-5 of the largest logit.

    Models are compared in float64: in float32 a deep stack of random layers can make more than that of rounding. What
    is always float32, as norms and routers are, still rounds.
    """
    assert actual.shape == expected.shape
    assert (actual - expected).abs().max() <= 5e-5 * max(1.0, expected.abs().max().item())


def has_experts(spec: zoo.ModelSpec) -> bool:
    return any(layer.ffn.cost(spec.d_model).inactive for layer in spec.layers)


@every_spec
def test_logits_have_the_declared_shape(spec: zoo.ModelSpec) -> None:
    logits = random_model(spec)(random_tokens(spec, 2, LENGTH), **given_to(spec, 2, LENGTH))
    assert logits.shape == (2, LENGTH, spec.vocab_size)
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()


@every_spec
def test_no_token_sees_the_future(spec: zoo.ModelSpec) -> None:
    """Beyond a prefix, where the model has one; where it sees all, a change is seen by all."""
    model, tokens, given = random_model(spec), random_tokens(spec, 1, LENGTH), given_to(spec, 1, LENGTH)
    before = model(tokens, **given)
    # A product over another number of rows may round differently, and who else chose an expert decides how many it has.
    slack = 1e-5 if has_experts(spec) else 0.0
    for changed in (0, 7, LENGTH - 1):
        other = tokens.clone()
        other[0, changed] = (other[0, changed] + 1) % spec.vocab_size
        after = model(other, **given)
        ahead = spec.visible == "all" or (spec.visible == "prefix" and changed < PREFIX)
        blind = slice(0, 0 if ahead else changed)
        torch.testing.assert_close(after[:, blind], before[:, blind], rtol=0, atol=slack * before.abs().max().item())
        seeing = slice(0, PREFIX if spec.visible == "prefix" else LENGTH) if ahead else slice(changed, changed + 1)
        assert (after != before).any(dim=-1)[:, seeing].all()


@every_spec
def test_every_parameter_gets_a_gradient(spec: zoo.ModelSpec) -> None:
    """In one draw of four: of a gated unit, whose scores go through a ReLU, all may be negative in some."""
    silent = silent_parameters(spec, 0)
    for seed in (1, 2, 3):
        silent = silent and silent & silent_parameters(spec, seed)
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
    of the output does not see a scale.
    """
    blind = ("mixer.k.bias", "blocks.0.mixer.values.weights", "block.mixer.values.weights")
    return name.endswith(blind) or (model.get_parameter(name).numel() == 1 and _is_normed_after(name, model))


def _is_normed_after(name: str, model: zoo.Decoder) -> bool:
    """Whether a gain of the stream, or of what a branch reads, is followed by another norm."""
    path, _, norm = name.removesuffix(".gain").rpartition(".")
    if norm != "norm_in":
        return norm in ("embedding_norm", "norm_after")
    residual = model.get_submodule(path)
    is_stream = isinstance(residual, NormedLayer)  # the shortcut too comes after this norm, and before the next
    return is_stream or not isinstance(getattr(residual, "norm_out", None), torch.nn.Identity | None)


@every_spec
@pytest.mark.parametrize("chunks", [[1] * LENGTH, [6, 1, 1, 9, 2], [LENGTH], [2, 17]], ids=str)
def test_cached_decoding_equals_the_uncached_forward(spec: zoo.ModelSpec, chunks: list[int]) -> None:
    model, tokens = random_model(spec).double(), random_tokens(spec, 2, LENGTH)
    if spec.visible == "all":
        with pytest.raises(ValueError, match="reads a text in one pass: there is nothing to cache"):
            model.new_cache(batch=2, capacity=LENGTH)
        return
    given = given_to(spec, 2, LENGTH, prefix=min(PREFIX, chunks[0]))
    cache = model.new_cache(batch=2, capacity=LENGTH, encoder_capacity=ENCODED)
    with torch.no_grad():
        assert_same(read_in(model, tokens, chunks, cache, given), model(tokens, **given))


@every_spec
@pytest.mark.parametrize("chunks", [[LENGTH], [8] + [1] * (LENGTH - 8), [9, 7, 3]], ids=str)
def test_left_padding_changes_nothing(spec: zoo.ModelSpec, chunks: list[int]) -> None:
    model, pads = random_model(spec).double(), [0, 3, 7]
    tokens, left_pad, given = random_tokens(spec, 3, LENGTH), torch.tensor(pads), given_to(spec, 3, LENGTH, prefix=1)
    with torch.no_grad():
        found = [model(tokens, left_pad=left_pad, **given)]
        if spec.visible != "all":
            cache, parts, start = model.new_cache(batch=3, capacity=LENGTH), [], 0
            for chunk in tokens.split(chunks, dim=1):
                pad = None if start else left_pad
                parts.append(model(chunk, cache, pad, **of_chunk(given, start, chunk.shape[1])))
                start += chunk.shape[1]
            found.append(torch.cat(parts, dim=1))
        for row, pad in enumerate(pads):
            alone = model(tokens[row : row + 1, pad:], **of_rows(given, slice(row, row + 1), pad))[0]
            for logits in found:
                assert_same(logits[row, pad:], alone)


@every_spec
def test_padding_at_the_right_changes_nothing(spec: zoo.ModelSpec) -> None:
    """Where tokens see all of the text: of the model, or of its encoder."""
    model, tokens, pads = random_model(spec).double(), random_tokens(spec, 3, LENGTH), [0, 2, 6]
    given, right_pad = given_to(spec, 3, LENGTH), torch.tensor(pads)
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


@every_spec
def test_a_row_does_not_depend_on_its_batch(spec: zoo.ModelSpec) -> None:
    model, tokens = random_model(spec).double(), random_tokens(spec, 3, LENGTH)
    given = given_to(spec, 3, LENGTH)
    together = model(tokens, **given)
    for row in range(3):
        rows = slice(row, row + 1)
        assert_same(together[row], model(tokens[rows], **of_rows(given, rows))[0])


@every_spec
def test_declared_parameters_are_those_counted(spec: zoo.ModelSpec) -> None:
    model, cost = zoo.build(spec), zoo.cost(spec)
    assert cost.params == sum(p.numel() for p in model.parameters())
    stacks = [model, *([model.encoder] if model.encoder is not None else [])]
    tables = [
        stack.positions[str(i)]
        for stack in stacks
        for i, (scheme, _) in enumerate(stack.spec.positions)
        if scheme.absolute
    ]
    tables += [model.embedding, *([model.token_types] if model.token_types is not None else [])]
    assert cost.params_embedding == sum(p.numel() for table in tables for p in table.parameters())


@every_spec
def test_declared_flops_are_those_counted(spec: zoo.ModelSpec) -> None:
    """Forward and backward: those executed with the backends that are chosen, and, where no layer computes a recurrence
    by chunks, whole score matrices with the plain one."""
    declared = zoo.cost(spec, context=LENGTH, encoder_context=ENCODED)
    with fused_kernels_as_products():
        assert training_flops(spec) == pytest.approx(declared.flops_per_token_executed, rel=1e-9)
    if not any(isinstance(layer.mixer, Stateful) for layer in spec.layers):
        with zoo.attention_backend("plain"):
            assert training_flops(spec) == pytest.approx(declared.flops_per_token_square, rel=1e-9)
    assert declared.flops_per_token <= declared.flops_per_token_square


def training_flops(spec: zoo.ModelSpec) -> float:
    """Of a step, per token."""
    model, tokens = random_model(spec).train(), random_tokens(spec, 2, LENGTH + 1)
    with counted(model, passes=3) as count:
        model.loss(tokens[:, :-1], tokens[:, 1:], **given_to(spec, 2, LENGTH))[0].backward()
    return count.total / (2 * LENGTH)


@every_spec
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_declared_cache_bytes_are_those_allocated(spec: zoo.ModelSpec, dtype: torch.dtype) -> None:
    if spec.visible == "all":
        assert zoo.cost(spec).cache_bytes(batch=3, context=23, dtype=dtype) == 0
        return
    cache = zoo.build(spec).new_cache(batch=3, capacity=23, dtype=dtype, encoder_capacity=7)
    assert cache.nbytes == zoo.cost(spec).cache_bytes(batch=3, context=23, dtype=dtype, encoder_context=7)
    assert cache.nbytes == sum(t.untyped_storage().nbytes() for t in held_by(cache.layers))


@pytest.mark.parametrize("spec", SPECS[::3], ids=lambda s: s.digest[:6])
def test_a_kind_of_cache_keeps_what_it_says(spec: zoo.ModelSpec) -> None:
    """One kind for every third spec here, all of them for all in the slow suite."""
    cache_conforms(spec, KINDS[int(spec.digest, 16) % len(KINDS)])


def cache_conforms(spec: zoo.ModelSpec, kind: dict[str, object]) -> None:
    """Its bytes are those declared; how a text is cut changes nothing, and pages are as good as the plain cache."""
    if spec.visible == "all":
        return
    model, tokens, given = random_model(spec).double(), random_tokens(spec, 2, LENGTH), given_to(spec, 2, LENGTH)
    try:
        caches = [model.new_cache(2, LENGTH, encoder_capacity=ENCODED, kind=cache_kind(kind)) for _ in range(2)]
    except zoo.UnsupportedError as error:
        assert error.reason
        return
    first = PREFIX if "prefix" in given else 1
    with torch.no_grad():
        found = read_in(model, tokens, [6, 1, 1, 9, 2], caches[0], given)
        assert_same(found, read_in(model, tokens, [first] + [1] * (LENGTH - first), caches[1], given))
        if kind["kind"] == "paged":
            assert_same(found, model(tokens, **given))
    declared = zoo.cost(spec).cache_bytes(2, LENGTH, torch.float64, ENCODED, cache=cache_kind(kind))
    assert [cache.nbytes for cache in caches] == [declared, declared]


def read_in(model: zoo.Decoder, tokens: torch.Tensor, chunks: list[int], cache: Cache, given: Given) -> torch.Tensor:
    """Logits of a text read in these chunks."""
    starts = itertools.accumulate(chunks, initial=0)
    parts = [
        model(chunk, cache, **of_chunk(given, start, chunk.shape[1]))
        for chunk, start in zip(tokens.split(chunks, dim=1), starts, strict=False)
    ]
    return torch.cat(parts, dim=1)


@every_spec
def test_save_and_open_keep_the_model(spec: zoo.ModelSpec, tmp_path: Path) -> None:
    model, tokens = random_model(spec), random_tokens(spec, 2, LENGTH)
    zoo.save(model, tmp_path)
    again = zoo.open(tmp_path)
    assert again.spec == spec
    given = given_to(spec, 2, LENGTH)
    torch.testing.assert_close(again(tokens, **given), model(tokens, **given), rtol=0, atol=0)


@every_spec
def test_dump_and_parse_are_inverse(spec: zoo.ModelSpec) -> None:
    again = zoo.parse(spec.dump())
    assert again == spec
    assert again.digest == spec.digest


@every_spec
def test_training_in_bfloat16_stays_near_float32(spec: zoo.ModelSpec) -> None:
    """To 5 % of the largest logit, of which rounding takes a share: without norms, logits can be of any size."""
    model, tokens = random_model(spec), random_tokens(spec, 2, LENGTH + 1)
    given = given_to(spec, 2, LENGTH)
    exact = model.loss(tokens[:, :-1], tokens[:, 1:], **given)[1]
    with torch.autocast("cpu", torch.bfloat16):
        rough = model.loss(tokens[:, :-1], tokens[:, 1:], **given)[1]
    largest = model.eval()(tokens[:, :-1], **given).abs().max().item()
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), abs=0.05 * largest)


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
    test_logits_have_the_declared_shape(spec)
    test_no_token_sees_the_future(spec)
    test_every_parameter_gets_a_gradient(spec)
    test_cached_decoding_equals_the_uncached_forward(spec, [6, 1, 1, 9, 2])
    test_left_padding_changes_nothing(spec, [8] + [1] * (LENGTH - 8))
    test_padding_at_the_right_changes_nothing(spec)
    test_a_row_does_not_depend_on_its_batch(spec)
    test_declared_parameters_are_those_counted(spec)
    test_declared_flops_are_those_counted(spec)
    test_declared_cache_bytes_are_those_allocated(spec, torch.float32)
    for kind in KINDS:
        cache_conforms(spec, kind)
    test_save_and_open_keep_the_model(spec, folder)
    test_dump_and_parse_are_inverse(spec)
    test_training_in_bfloat16_stays_near_float32(spec)

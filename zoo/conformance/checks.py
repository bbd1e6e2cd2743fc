"""Properties that every model must have, whatever its parts: one function each, which raises ConformanceError.

Logits are compared in float64: in float32, rounding in a deep stack of random layers can exceed 1e-5.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

import zoo
from zoo.caches import cache_kind
from zoo.caching.cache import TokenCache
from zoo.caching.parts import PartsCache
from zoo.caching.states import TokenStateCache
from zoo.compatibility.support import unsupported
from zoo.compatibility.traits import Operation
from zoo.conformance.combinations import ENCODED, PREFIX, held_by, of_chunk, of_rows
from zoo.conformance.flops import flops, needed_flops, silent_parameters
from zoo.conformance.subject import (
    LENGTH,
    NOT_APPLICABLE,
    CheckSubject,
    read_in,
    require,
    require_equal,
    require_refused,
    require_same,
)
from zoo.init import Embedding

KINDS = (
    {"kind": "int8", "group": 4},
    {"kind": "int4", "group": 5},
    {"kind": "sink", "sinks": 2, "recent": 5},
    {"kind": "paged", "page": 4},
)
CHUNKS = ([6, 1, 1, 9, 2], [1] * LENGTH, [LENGTH], [2, 17])
PADDED_CHUNKS = ([8, 1, 1, 6, 3], [LENGTH])
"""Lengths of the chunks in which a text is fed to a cache: the first tuple for every spec, others if `thorough`."""


@torch.no_grad()
def shape(subject: CheckSubject) -> None:
    """Logits have the declared shape, in float32, and are finite."""
    tokens, given = subject.read(2)
    logits = subject.model(tokens, **given)
    require_equal(tuple(logits.shape), (2, LENGTH, subject.spec.vocab_size), "shape of the logits")
    require_equal(logits.dtype, torch.float32, "dtype of the logits")
    require(logits.isfinite().all(), "logits are not finite")


@torch.no_grad()
def causality(subject: CheckSubject) -> None:
    """No token sees the future, except in a prefix or a bidirectional model, where all tokens see every change."""
    spec, model, (tokens, given) = subject.spec, subject.model, subject.read(1)
    before = model(tokens, **given)
    # Matrix products may round differently with another number of rows. A changed token can change how many tokens an
    # expert gets, how many are selected, and how many chunks there are.
    chooses = any(subset is not None for subset in spec.subsets)
    chooses |= any(layer.ffn.cost(spec.d_model).inactive for layer in spec.layers)
    slack = 1e-5 if chooses else 0.0
    moves = not all(layer.mixer.absent for layer in spec.layers)  # without mixers, nothing passes between tokens
    for changed in (0, 7, LENGTH - 1):
        other = tokens.clone()
        other[0, changed] = (other[0, changed] + 1) % spec.vocab_size
        after = model(other, **given)
        ahead = moves and (spec.visible == "all" or (spec.visible == "prefix" and changed < PREFIX))
        # An FFN that selects among all tokens may or may not pass a change on to earlier ones.
        blind = slice(0, 0 if ahead or any(layer.ffn.sees_text for layer in spec.layers) else changed)
        leaked = (after[:, blind] - before[:, blind]).abs()
        require((leaked <= slack * before.abs().max()).all(), f"token {changed} changes logits of earlier tokens")
        seeing = slice(0, PREFIX if spec.visible == "prefix" else LENGTH) if ahead else slice(changed, changed + 1)
        require(
            (after != before).any(dim=-1)[:, seeing].all(),
            f"logits of some tokens that see token {changed} do not depend on it",
        )


def gradients(subject: CheckSubject) -> None:
    """Every parameter gets a gradient in at least one of four random models: in some, all inputs of a unit's ReLU may
    be negative. In every one, the loss and all gradients are finite."""
    silent = silent_parameters(subject.spec, 0)
    for seed in (1, 2, 3):
        silent = silent and silent & silent_parameters(subject.spec, seed)
    require(not silent, f"no gradient for {', '.join(sorted(silent))}")


def caching(subject: CheckSubject) -> str | None:
    """Cached decoding equals the uncached forward pass, however the text is split."""
    if subject.spec.visible == "all":
        call = functools.partial(subject.model.new_cache, batch=2, capacity=LENGTH)
        require_refused(call, "reads a text in one pass: there is nothing to cache")
        return NOT_APPLICABLE
    model = subject.double
    for chunks in CHUNKS if subject.thorough else CHUNKS[:1]:
        tokens, given = subject.read(2, prefix=min(PREFIX, chunks[0]))
        cache = model.new_cache(batch=2, capacity=LENGTH, encoder_capacity=ENCODED)
        what = f"logits with a cache (chunks of {chunks} tokens) and without one"
        with torch.no_grad():
            require_same(read_in(model, tokens, chunks, cache, given), model(tokens, **given), what)
    return None


def left_padding(subject: CheckSubject) -> None:
    """Left padding changes no logits, with and without a cache."""
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
                what = f"logits with {pad} tokens of left padding and without (see `on_text`)"
                require_same(logits[row, pad:], alone, what)


def right_padding(subject: CheckSubject) -> str | None:
    """Right padding changes no logits, in a bidirectional model or in an encoder's input."""
    spec, model, pads = subject.spec, subject.double, [0, 2, 6]
    right_pad, (tokens, given) = torch.tensor(pads), subject.read(3)
    with torch.no_grad():
        if spec.visible == "all":
            padded = model(tokens, right_pad=right_pad, **given)
        elif spec.encoder is not None:
            padded = model(tokens, encoder_right_pad=right_pad, **given)
        else:
            call = functools.partial(model, tokens, right_pad=right_pad)
            require_refused(call, "right_pad needs a model with visible: all")
            return NOT_APPLICABLE
        for row, pad in enumerate(pads):
            own = of_rows(given, slice(row, row + 1))
            end = LENGTH - pad if spec.visible == "all" else LENGTH
            if "token_types" in own:
                own["token_types"] = own["token_types"][:, :end]
            if "encoder_tokens" in own:
                own["encoder_tokens"] = own["encoder_tokens"][:, : ENCODED - pad]
            alone = model(tokens[row : row + 1, :end], **own)[0]
            require_same(padded[row, :end], alone, f"logits with {pad} tokens of right padding and without")
    return None


def documents(subject: CheckSubject) -> str | None:
    """Documents that share a row have the logits that each has alone; other models refuse them."""
    spec, model, (tokens, given) = subject.spec, subject.double, subject.read(2)
    numbers = torch.zeros_like(tokens)
    numbers[0, 8:], numbers[1, 3:], numbers[1, 11:] = 1, 1, 2
    given.pop("prefix", None)
    call = functools.partial(model, tokens, documents=numbers, **given)
    if unsupported(spec, Operation.DOCUMENTS):
        require_refused(call, "does not support")
        return NOT_APPLICABLE
    with torch.no_grad():
        together = call()
        for row, start, end in ((0, 0, 8), (0, 8, LENGTH), (1, 0, 3), (1, 3, 11), (1, 11, LENGTH)):
            own = of_chunk(of_rows(given, slice(row, row + 1)), start, end - start)
            alone = model(tokens[row : row + 1, start:end], **own)[0]
            require_same(together[row, start:end], alone, "logits of a document beside others and alone")
    return None


def batching(subject: CheckSubject) -> None:
    """The logits of a row do not depend on the rest of its batch."""
    tokens, given = subject.read(3)
    with torch.no_grad():
        together = subject.double(tokens, **given)
        for row in range(3):
            rows = slice(row, row + 1)
            alone = subject.double(tokens[rows], **of_rows(given, rows))[0]
            require_same(together[row], alone, "logits of a row in a batch and alone")


def parameters(subject: CheckSubject) -> None:
    """Declared numbers of parameters, in total and of embeddings, equal those counted."""
    model, cost = subject.model, zoo.cost(subject.spec)
    require_equal(cost.params, sum(p.numel() for p in model.parameters()), "declared parameters (by `cost`)")
    stacks = [model, *([model.encoder] if model.encoder is not None else [])]
    tables: list[torch.nn.Module] = [
        stack.positions[str(i)]
        for stack in stacks
        for i, (scheme, _) in enumerate(stack.spec.positions)
        if scheme.absolute
    ]
    tables += [module for part in model.parts for module in part.modules() if isinstance(module, Embedding)]
    tables += [model.embedding, *([model.token_types] if model.token_types is not None else [])]
    embedded = sum(p.numel() for table in tables for p in table.parameters())
    require_equal(cost.params_embedding, embedded, "declared parameters of embeddings")


def cache_bytes(subject: CheckSubject) -> None:
    """Declared bytes and token buffers of the cache equal those allocated."""
    spec = subject.spec
    if spec.visible != "all":
        _require_buffers(subject)
    for dtype in (torch.float32, torch.bfloat16):
        declared = zoo.cost(spec).cache_bytes(batch=3, context=23, dtype=dtype, encoder_context=7)
        if spec.visible == "all":
            require_equal(declared, 0, f"declared cache bytes of a model without a cache, in {dtype}")
        else:
            cache = subject.model.new_cache(batch=3, capacity=23, dtype=dtype, encoder_capacity=7)
            held = sum(t.untyped_storage().nbytes() for t in held_by(cache.layers))
            for name, said in (("nbytes` of the cache", cache.nbytes), ("cache_elements`", declared)):
                require(said == held, f"`{name} says {said:,} bytes in {dtype}, but {held:,} are allocated")


def _require_buffers(subject: CheckSubject) -> None:
    """Require that `cached` of each mixer declares the buffers of its `TokenCache`: kinds of cache rely on it."""
    layers = subject.model.new_cache(batch=1, capacity=LENGTH, encoder_capacity=ENCODED).layers
    if len(layers) != len(subject.spec.layers):
        return  # a feature keeps one cache for several layers
    for layer, cache in zip(subject.spec.layers, layers, strict=True):
        parts = cache.parts.values() if isinstance(cache, PartsCache) else [cache]
        for tokens in (part.tokens if isinstance(part, TokenStateCache) else part for part in parts):
            if isinstance(tokens, TokenCache):
                found = tuple((buffer.shape[1], buffer.shape[3]) for buffer in tokens.buffers)
                what = f"`cached` of the mixer {layer.mixer.kind}, the (heads, features) of its TokenCache"
                require_equal(layer.mixer.cached(), found, what)


def saving(subject: CheckSubject) -> None:
    """A model is the same after saving and opening."""
    tokens, given = subject.read(2)
    with tempfile.TemporaryDirectory() as folder:
        zoo.save(subject.model, Path(folder))
        again = zoo.open(Path(folder))
    require_equal(again.spec, subject.spec, "the spec after saving and opening")
    with torch.no_grad():
        same = torch.equal(again(tokens, **given), subject.model(tokens, **given))
    require(same, "logits after saving and opening differ")


def dumping(subject: CheckSubject) -> None:
    """A spec is the same after dumping it as plain data and parsing."""
    again = zoo.parse(subject.spec.dump())
    require_equal(again, subject.spec, "the spec after dumping and parsing")
    require_equal(again.digest, subject.spec.digest, "its digest after dumping and parsing")


def bfloat16(subject: CheckSubject) -> None:
    """The bfloat16 loss differs from the float32 loss by at most 5 % of the largest logit: rounding grows with the
    logits, which can have any size without norms. Their softcap is removed, as it could turn a small relative error of
    logits in the millions into a change of sign."""
    model, (tokens, given) = subject.model, subject.read(2, LENGTH + 1)
    if subject.spec.final_softcap is not None:
        model = zoo.build(subject.spec.edit({"final_softcap": None})).eval()
        model.load_state_dict(subject.model.state_dict())
    exact = model.loss(tokens[:, :-1], tokens[:, 1:], **given)[1]
    with torch.autocast("cpu", torch.bfloat16):
        rough = model.loss(tokens[:, :-1], tokens[:, 1:], **given)[1]
    largest = model(tokens[:, :-1], **given).abs().max().item()
    require_equal(rough.dtype, torch.float32, "dtype of the loss")
    off = abs(rough.item() - exact.item())
    require(off <= 0.05 * largest, f"the bfloat16 loss is off by {off:.2g}; the largest logit is {largest:.2g}")


def kinds_of_cache(subject: CheckSubject) -> str | None:
    """Every kind of cache allocates the declared bytes and gives the same logits however a text is split. Unless
    `thorough`, one of them is tried, which the spec's digest selects: together, many models try all."""
    kinds = KINDS if subject.thorough else [KINDS[int(subject.spec.digest, 16) % len(KINDS)]]
    found = [kind_of_cache(subject, kind) for kind in kinds]
    return NOT_APPLICABLE if all(found) else None


def kind_of_cache(subject: CheckSubject, kind: dict[str, object]) -> str | None:
    """Check one kind of cache. A model may refuse it with a reason. A paged cache must equal the uncached pass, too."""
    spec, model, (tokens, given) = subject.spec, subject.double, subject.read(2)
    if spec.visible == "all":
        return NOT_APPLICABLE
    try:
        caches = [model.new_cache(2, LENGTH, encoder_capacity=ENCODED, kind=cache_kind(kind)) for _ in range(2)]
    except zoo.UnsupportedError as error:
        require(error.reason, f"refuses a cache of kind {kind['kind']} without a reason")
        return NOT_APPLICABLE
    first = PREFIX if "prefix" in given else 1
    with torch.no_grad():
        found = read_in(model, tokens, CHUNKS[0], caches[0], given)
        again = read_in(model, tokens, [first] + [1] * (LENGTH - first), caches[1], given)
        require_same(found, again, f"logits with {kind['kind']} caches, read in different chunks,")
        if kind["kind"] == "paged":
            require_same(found, model(tokens, **given), "logits with a paged cache and without one")
    declared = zoo.cost(spec).cache_bytes(2, LENGTH, torch.float64, ENCODED, cache=cache_kind(kind))
    for cache in caches:
        said = f"`cached` and `cache_elements` say {declared:,} bytes for {kind['kind']} caches"
        require(cache.nbytes == declared, f"{said}, but {cache.nbytes:,} are allocated")
    return None


Check = Callable[[CheckSubject], str | None]
"""A check of one property. Raises ConformanceError if it fails; returns NOT_APPLICABLE or None."""
CHECKS: tuple[Check, ...] = (
    *(shape, causality, gradients, caching, left_padding, right_padding, documents, batching, parameters),
    *(flops, needed_flops, cache_bytes, saving, dumping, bfloat16, kinds_of_cache),
)

"""Costs of reading and writing with encoder–decoders and prefix models: FLOPs and parameters as torch counts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import zoo
from zoo.caching.cache import Cache
from zoo.costs import cost
from zoo.costs_decoding import decode_cost, prefill_cost
from zoo.spec import longest_context

CONTEXT = 7
SHAPE = {"d_model": 24, "n_layers": 3, "vocab_size": 40, "block.mixer.heads": 4}
ENCODED: dict[str, dict[str, Any]] = {
    "deep": {"encoder.n_layers": 2},
    "untied": {"encoder.n_layers": 1, "tie_embeddings": False, "embedding_dim": 8, "embedding_scale": 1.0},
    "kv heads": {"encoder.n_layers": 2, "block.cross": {"kv_heads": 2, "head_dim": 5, "bias": True}},
    "t5": {"encoder.n_layers": 2, "block.mixer.position": "t5"},
}
PREFIX = {"prefix": {"visible": "prefix"}}
every_kind = pytest.mark.parametrize("edits", (ENCODED | PREFIX).values(), ids=ENCODED | PREFIX)


def built(edits: dict[str, Any]) -> zoo.Decoder:
    model = zoo.build(zoo.load("small", **SHAPE, **edits)).eval()
    with torch.no_grad():  # or nothing that is behind a head of zeros had a gradient
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return model


def written(batch: int, count: int) -> torch.Tensor:
    """No token twice in a table's rows, where each row has one."""
    return (39 - torch.arange(batch))[:, None].expand(batch, count)


def read(model: zoo.Decoder, batch: int, source: int, own: int) -> Cache:
    """The cache after a prompt: of `source` tokens of an encoder's and `own` of the model's, the last of which is
    asked what follows; or of `source` tokens that are a prefix."""
    tokens = torch.arange(batch * source).view(batch, source) % 30
    cache = model.new_cache(batch, source + 1, encoder_capacity=source)
    if model.encoder is None:
        hidden = model.hidden(tokens, cache, prefix=torch.full((batch,), source))
    else:
        hidden = model.hidden(written(batch, own), cache, encoder_tokens=tokens)
    model.read_out(hidden[:, -1:])
    return cache


def write(model: zoo.Decoder, batch: int, cache: Cache) -> None:
    model(written(batch, 1), cache)


class Reads(TorchDispatchMode):
    """Which parameters operations are given, and which rows of those that are looked up."""

    def __init__(self, model: zoo.Decoder) -> None:
        super().__init__()
        self.parameters = {p.untyped_storage().data_ptr(): p for p in model.parameters()}
        self.whole: set[int] = set()
        self.rows: dict[int, set[int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        looked_up = func is torch.ops.aten.embedding.default
        for tensor in (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)):
            place = tensor.untyped_storage().data_ptr()
            if place in self.parameters and looked_up:
                self.rows.setdefault(place, set()).update(args[1].flatten().tolist())
            elif place in self.parameters:
                self.whole.add(place)
        return func(*args, **(kwargs or {}))

    @property
    def count(self) -> int:
        rows = {p: len(rows) * self.parameters[p].shape[1] for p, rows in self.rows.items() if p not in self.whole}
        return sum(self.parameters[place].numel() for place in self.whole) + sum(rows.values())


def counted(model: zoo.Decoder, work: Callable[[], object]) -> tuple[float, int]:
    """FLOPs, and numbers of parameters that are used."""
    reads, counter = Reads(model), FlopCounterMode(display=False)
    with torch.no_grad(), zoo.attention_backend("plain"), counter, reads:
        work()
    return counter.get_total_flops(), reads.count


@every_kind
@pytest.mark.parametrize("batch", [1, 2])
def test_reading_takes_what_is_declared(edits: dict[str, Any], batch: int) -> None:
    """No score is masked where all is seen, and the decoder's first token sees itself."""
    model = built(edits)
    declared = prefill_cost(model.spec, batch, CONTEXT)
    found = counted(model, lambda: read(model, batch, CONTEXT, 1))
    assert found == pytest.approx((declared.flops, declared.parameters), rel=1e-9)


@every_kind
@pytest.mark.parametrize("batch", [1, 2])
def test_writing_takes_what_is_declared(edits: dict[str, Any], batch: int) -> None:
    """The token after a context that was read, and as many written where an encoder read it: the cache holds both."""
    model = built(edits)
    seen = CONTEXT if model.encoder is not None else CONTEXT - 1
    with torch.no_grad():
        cache = read(model, batch, seen, CONTEXT - 1)
    declared = decode_cost(model.spec, batch, CONTEXT)
    found = counted(model, lambda: write(model, batch, cache))
    assert found == pytest.approx((declared.flops, declared.parameters), rel=1e-9)


@pytest.mark.parametrize("edits", ENCODED.values(), ids=ENCODED)
def test_what_is_read_of_the_cache_is_what_is_allocated(edits: dict[str, Any]) -> None:
    model = built(edits)
    assert decode_cost(model.spec, 2, CONTEXT).cache_elements * 4 == model.new_cache(2, CONTEXT).nbytes
    written = model.new_cache(2, 1, encoder_capacity=CONTEXT)
    assert prefill_cost(model.spec, 2, CONTEXT).cache_elements * 4 == written.nbytes


def test_a_whole_pass_is_its_parts() -> None:
    """Reading the source, then all of the decoder's tokens one by one, is the pass that training makes, but for heads
    that predict nothing."""
    spec = built(ENCODED["kv heads"]).spec
    encoder, layers = spec.encoder_spec, [layer.cross for layer in spec.layers if layer.cross]
    assert encoder is not None
    each = [decode_cost(spec, 1, n + 1).flops for n in range(CONTEXT)]
    seen = sum(cross.decode_flops(24, 1) - cross.decode_flops(24, 0) for cross in layers)
    decoded = sum(each) + seen * sum(CONTEXT - n - 1 for n in range(CONTEXT))
    first = each[0] + seen * (CONTEXT - 1)
    whole = prefill_cost(spec, 1, CONTEXT).flops - first + decoded
    assert CONTEXT * cost(spec, CONTEXT).flops_per_token_forward == pytest.approx(whole, rel=1e-12)


def test_the_longest_context_is_the_shorter_of_two_tables() -> None:
    table = {"kind": "learned", "length": 30}
    edits = {
        "encoder": {"n_layers": 1, "block": {"mixer.position": table}},
        "block.mixer.position": {**table, "length": 40},
    }
    spec = zoo.load("small", **SHAPE, **edits)
    assert longest_context(spec) == 30
    assert longest_context(zoo.load("gpt2")) == 1024

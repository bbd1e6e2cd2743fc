"""A wider model that computes the same function as a narrower one.

Features of the residual stream, heads and hidden features of the wider model are copies of the narrower one's. Weights
that write to features are copied; weights that read them are split among the copies, so that sums stay equal (Net2Net,
Chen et al. 2016, arXiv:1511.05641; for Transformers bert2BERT, Chen et al. 2021, arXiv:2110.07154, and HyperCloning,
Samragh et al. 2024, arXiv:2409.12903). Copies that are written and read with equal weights would get equal gradients
forever. Every output therefore splits each input by its own shares, drawn with the seed: copies diverge at the first
step.

The stream is tiled as a whole. Its mean and mean square are then those of one tile, so RMSNorm and LayerNorm give tiles
of the narrow output; L2Norm does with √m times the gain, m being the widening factor. Heads keep their size and their
1/√d; query heads are tiled within the group that reads one kv head. A tied table gives logits m times as large. The
part of this factor that the wider spec's embedding or logit scale does not cancel is divided out of the gain of the
norm before the head, or of the projection there. Sums are rounded in another order: logits agree to float32 precision.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zoo.block_spec import BlockSpec
from zoo.compatibility.support import unsupported
from zoo.compatibility.traits import Operation
from zoo.errors import SpecError, under
from zoo.ffns._dense import Dense
from zoo.init import generator
from zoo.mixers.attention import Attention
from zoo.norms import Norm
from zoo.settings.field_tags import Fact, names_with
from zoo.spec import ModelSpec


@dataclass(frozen=True)
class Copies:
    """Origin of copies: feature i of the wide layer copies feature `of[i]` of the narrow layer's `count`."""

    of: Tensor
    count: int

    @staticmethod
    def tiled(count: int, wide: int) -> Copies:
        """The narrow features repeated in their order: i mod count."""
        return Copies(torch.arange(wide, device="cpu") % count, count)

    @staticmethod
    def grouped(heads: tuple[int, int], kv_heads: tuple[int, int]) -> Copies:
        """Copies of query heads such that each reads a copy of its kv head if kv heads are tiled: heads repeat in their
        order within the group that shares a kv head. heads, kv_heads: narrow and wide number."""
        group, wide = (h // k for h, k in zip(heads, kv_heads, strict=True))
        # Wide head h reads wide kv head h // wide, a copy of kv head h // wide % kv_heads[0], whose group begins there.
        head = torch.arange(heads[1], device="cpu")
        return Copies(head // wide % kv_heads[0] * group + head % wide % group, heads[0])

    def of_features(self, width: int) -> Copies:
        """Copies of single features, from copies of heads with `width` features each."""
        inside = torch.arange(width, device="cpu")
        return Copies((self.of[:, None] * width + inside).flatten(), self.count * width)

    def then(self, other: Copies) -> Copies:
        """Copies of both layers' features, concatenated."""
        return Copies(torch.cat((self.of, other.of + self.count)), self.count + other.count)

    @property
    def factor(self) -> float:
        """Mean number of copies per feature."""
        return len(self.of) / self.count

    def shares(self, rows: int, draw: torch.Generator) -> Tensor:
        """Share of each copy in each row, (rows, wide) in float64: positive, sum 1 over the copies of a feature, and
        distributed as Dirichlet(1, …, 1), which is sampled as normalised exponentials."""
        drawn = torch.empty(rows, len(self.of), dtype=torch.float64).exponential_(generator=draw)
        totals = drawn.new_zeros(rows, self.count).index_add(1, self.of, drawn)  # (rows, count): sums over copies
        return drawn / totals[:, self.of]


def copied(weight: Tensor, axes: Sequence[Copies | None]) -> Tensor:
    """The weight with copies along each axis that has them."""
    for axis, copies in enumerate(axes):
        if copies is not None:
            weight = weight.index_select(axis, copies.of.to(weight.device))
    return weight


def split(weight: Tensor, inputs: Copies, draw: torch.Generator) -> Tensor:
    """A weight (out, wide) with copied inputs, multiplied by shares that sum to 1 over the copies of an input."""
    shares = inputs.shares(weight.shape[0], draw).to(weight.device)
    return (weight.double() * shares).to(weight.dtype)


Axes = tuple[str, ...]
"""Kind of features along each axis of a parameter: "" if they do not grow, with a leading slash if they are read."""

ENDS: Mapping[str, Axes] = {
    r"embedding\.weight": ("", "table"),
    r"token_types\.weight": ("", "stream"),
    r"positions\.\d+\.(block_)?table\.weight": ("", "stream"),
    r"project_in\.weight": ("stream", "/table"),
    r"project_out\.weight": ("table", "/stream"),
    r"transform\.dense\.weight": ("stream", "/stream"),
    r"transform\.dense\.bias": ("stream",),
    r"head\.weight": ("", "/table"),
    r"head_bias": ("",),
    r"(embedding_norm|norm|transform\.norm)\.\w+": ("stream",),
    r"(first_stream|layer_gains)\.\w+": ("",),
}
BLOCK: Mapping[str, Axes] = {
    r"mixer\.q\.weight": ("queries", "/stream"),
    r"mixer\.k\.weight": ("keys", "/stream"),
    r"mixer\.v\.weight": ("values", "/stream"),
    r"mixer\.o\.weight": ("stream", "/heads' outputs"),
    r"mixer\.q\.bias": ("queries",),
    r"mixer\.k\.bias": ("keys",),
    r"mixer\.v\.bias": ("values",),
    r"mixer\.o\.bias": ("stream",),
    r"mixer\.sinks": ("heads",),
    r"mixer\.gate\.project\.weight": ("gates", "/stream"),
    r"mixer\.conv\.weight": ("projected", ""),
    r"mixer\.values\.weights": ("",),
    r"mixer\.v_norm\.\w+": ("",),
    r"mixer\.q_norm\.\w+": ("normed queries",),
    r"mixer\.k_norm\.\w+": ("normed keys",),
    r"mixer\.[qk]_norm\.norms\.\d+\.\w+": ("",),
    r"ffn\.(up|gate)\.weight": ("hidden", "/stream"),
    r"ffn\.down\.weight": ("stream", "/hidden"),
    r"ffn\.(up|gate)\.bias": ("hidden",),
    r"ffn\.down\.bias": ("stream",),
    r"ffn\.conv\.weight": ("activated", ""),
    r"ffn\.activation\.\w+": ("",),
    r"canon\.\w+\.conv\.weight": ("stream", ""),
    r"(mixer|ffn)_residual\.(norm_\w+|asked\.norm)\.\w+": ("stream",),
    r"(mixer|ffn)_residual\.asked\.weight": ("", "/stream"),
    r"(mixer|ffn)_residual\.(read|write|asked\.scale)": ("", ""),
}

_BLOCK = re.compile(r"blocks\.(\d+)\.(.+)")
_HEAD_NORM = re.compile(r"(mixer\.([qk])_norm\.norms\.)(\d+)(\..+)")


def check_widening(source: ModelSpec, target: ModelSpec, names: Iterable[str]) -> None:
    """Raise SpecError if the wider model cannot compute the same function. names: the narrower model's weights."""
    check_specs(source, target)
    for name in names:
        match = _BLOCK.fullmatch(name)
        _axes(BLOCK, match[2]) if match else _axes(ENDS, name)


def widened(source: ModelSpec, target: ModelSpec, weights: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Weights with which a model of `target` computes the same function as one of `source` with `weights`."""
    ends = {
        "stream": Copies.tiled(source.d_model, target.d_model),
        "table": Copies.tiled(source.table_width, target.table_width),
    }
    made: dict[str, Tensor] = {}
    blocks = [ends | _copies(*pair) for pair in zip(source.layers, target.layers, strict=True)]
    for name in _names(source, target, weights):
        match = _BLOCK.fullmatch(name)
        if match is None:
            made[name] = _grown(weights[name], _axes(ENDS, name), ends, seed, name, source.block.norm)
            continue
        layer, copied_from = source.block_of_each.index(int(match[1])), match[2]
        if head := _HEAD_NORM.fullmatch(match[2]):
            which = blocks[layer]["heads" if head[2] == "q" else "kv heads"].of[int(head[3])]
            copied_from = f"{head[1]}{int(which)}{head[4]}"
        value, block = weights[f"blocks.{match[1]}.{copied_from}"], source.layers[layer]
        norm = attention_of(block).qk_norm if match[2].startswith("mixer.") else block.norm
        made[name] = _grown(value, _axes(BLOCK, match[2]), blocks[layer], seed, name, norm)
    _scale_ends(made, source, target)
    return made


def _names(source: ModelSpec, target: ModelSpec, weights: Mapping[str, Tensor]) -> Iterator[str]:
    """Names of the wider model's weights, which has more norms of single heads."""
    for name in weights:
        match = _BLOCK.fullmatch(name)
        head = _HEAD_NORM.fullmatch(match[2]) if match else None
        if match is None or head is None:
            yield name
        elif head[3] == "0":
            layer = source.block_of_each.index(int(match[1]))
            heads, kv_heads, _ = attention_of(target.layers[layer]).sizes()
            count = heads if head[2] == "q" else kv_heads
            yield from (f"blocks.{match[1]}.{head[1]}{number}{head[4]}" for number in range(count))


def _axes(rules: Mapping[str, Axes], name: str) -> Axes:
    for pattern, axes in rules.items():
        if re.fullmatch(pattern, name):
            return axes
    raise unknown("", name)


def _grown(value: Tensor, axes: Axes, known: Mapping[str, Copies], seed: int, name: str, norm: Norm | None) -> Tensor:
    if "norm" in name and value.numel() == 1 and axes[0] in known:
        # A scalar for all features: α of DyT, or the gain of L2Norm, whose vectors become √m times as long.
        return value * math.sqrt(known[axes[0]].factor) if norm is not None and norm.kind == "l2norm" else value
    copies = [known.get(axis.removeprefix("/")) for axis in axes]
    value, inputs = copied(value, copies), copies[-1]
    if axes[-1].startswith("/") and inputs is not None:
        value = split(value, inputs, generator(seed, f"shares of {name}"))
    return value


def _copies(narrow: BlockSpec, wide: BlockSpec) -> dict[str, Copies]:
    """Copies of the features of a block's parts, keyed by their names in `BLOCK`."""
    ours, theirs = attention_of(wide), attention_of(narrow)
    heads, kv_heads, head_dim = zip(theirs.sizes(), ours.sizes(), strict=True)
    query, kv = Copies.grouped(heads, kv_heads), Copies.tiled(*kv_heads)
    queries, keys = query.of_features(head_dim[0]), kv.of_features(head_dim[0])
    outputs, values = query.of_features(ours.value_features), kv.of_features(ours.value_features)
    copies = {
        "heads": query,
        "kv heads": kv,
        "queries": queries,
        "keys": keys,
        "values": values,
        "heads' outputs": outputs,
        "projected": queries.then(keys).then(values),
    }
    copies["gates"] = query if (ours.gate or "").startswith("head") else outputs
    if ours.qk_norm_over == "full":
        copies |= {"normed queries": queries, "normed keys": keys}
    if isinstance(narrow.ffn, Dense) and isinstance(wide.ffn, Dense):
        hidden = Copies.tiled(narrow.ffn.width, wide.ffn.width)
        copies |= {"hidden": hidden, "activated": hidden.then(hidden) if wide.ffn.gated else hidden}
    return copies


def _scale_ends(made: dict[str, Tensor], source: ModelSpec, target: ModelSpec) -> None:
    """Compensate, in place, for other scales of embedding and logits, and for copies that a tied head sums over."""
    made["embedding.weight"] = made["embedding.weight"] * (source.embedding_factor / target.embedding_factor)
    logits = source.logit_scale / target.logit_scale
    for name in {"head.weight", "head_bias"} & made.keys():
        made[name] = made[name] * logits
    factor, norm = leftover(source, target), norm_before_head(target)
    if factor == 1:
        return
    if target.embedding_dim is not None:
        made["project_out.weight"] = made["project_out.weight"] * factor
        return
    offset = 1.0 if getattr(target.block.norm, "unit_offset", False) else 0.0
    made[f"{norm}.gain"] = (made[f"{norm}.gain"] + offset) * factor - offset
    if f"{norm}.bias" in made:
        made[f"{norm}.bias"] = made[f"{norm}.bias"] * factor


# Conditions under which a wider model computes the same function as a narrower one.

GROWING = (Fact.WIDTH, Fact.HEADS, Fact.SHARED_HEADS, Fact.SCALE)
SIZES = tuple(name for part in (ModelSpec, Attention, Dense) for name in names_with(part, *GROWING))
"""Settings in which the two specs may differ: they determine what is copied or scaled."""


def check_specs(source: ModelSpec, target: ModelSpec) -> None:
    """Raise SpecError if a model of `target` cannot compute the same function as one of `source`."""
    for part in unsupported(target, Operation.WIDENING):
        raise unknown(part.path, part.name)
    if source.n_layers != target.n_layers:
        reason = f"must be {source.n_layers}, not {target.n_layers}: growth: width keeps the number of layers"
        raise SpecError("n_layers", reason)
    for path, ours, theirs in _differences(target.computation(), source.computation()):
        raise SpecError(path, f"must stay {theirs}, not {ours}: growth: width changes only {', '.join(SIZES)}")
    if (source.embedding_dim is None) != (target.embedding_dim is None):
        raise SpecError("embedding_dim", "growth: width needs a factorised embedding in both models or in neither")
    _multiple("d_model", source.d_model, target.d_model)
    _multiple("embedding_dim", source.table_width, target.table_width)
    for number, pair in enumerate(zip(source.layers, target.layers, strict=True)):
        with under(f"layers.{number}"):
            _check_sizes(*pair)
    factor = leftover(source, target)
    if factor != 1 and target.embedding_dim is None and norm_before_head(target) is None:
        larger, scale = f"{1 / factor:.6g} times as large", f"{target.logit_scale * factor:.6g}"
        reason = (
            f"tied logits would be {larger}, without a gain before the head to undo that: set logit_scale to {scale}"
        )
        raise SpecError("tie_embeddings", reason)


def unknown(path: str, what: str) -> SpecError:
    return SpecError(path, f"growth: width cannot widen {what}")


def _check_sizes(narrow: BlockSpec, wide: BlockSpec) -> None:
    heads, kv_heads, _ = zip(attention_of(narrow).sizes(), attention_of(wide).sizes(), strict=True)
    _multiple("mixer.kv_heads", *kv_heads)
    group, wider = (h // k for h, k in zip(heads, kv_heads, strict=True))
    if wider % group:
        reason = f"growth: width needs a multiple of {group} query heads per kv head, not {wider}"
        raise SpecError("mixer.heads", reason)
    if isinstance(narrow.ffn, Dense) and isinstance(wide.ffn, Dense) and wide.ffn.width < narrow.ffn.width:
        raise SpecError("ffn.d_ff", f"growth: width needs at least {narrow.ffn.width}, not {wide.ffn.width}")


def _multiple(path: str, narrow: int, wide: int) -> None:
    if wide % narrow:
        raise SpecError(path, f"growth: width needs a multiple of {narrow}, not {wide}")


def _differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Settings other than sizes that differ: path, our value, their value."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted((ours.keys() | theirs.keys()).difference(SIZES), key=lambda key: (key != "kind", key)):
            yield from _differences(ours.get(key), theirs.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from _differences(*pair, f"{path}.{number}")
    elif ours != theirs:
        yield path, ours, theirs


def leftover(source: ModelSpec, target: ModelSpec) -> float:
    """Factor on the input of a tied head that preserves the logits: s / (s′ t c) for logit scales s (source) and s′, a
    table scaled by t, and c copies of its features. 1 for an untied head."""
    table = source.embedding_factor / target.embedding_factor
    factor = source.logit_scale / target.logit_scale / table / (target.table_width / source.table_width)
    return factor if target.tie_embeddings and not math.isclose(factor, 1.0) else 1.0


def norm_before_head(model: ModelSpec) -> str | None:
    """Name of the norm whose output the head reads; None without such a norm or its gain."""
    norm = model.block.norm
    if norm.kind == "none" or not getattr(norm, "gain", True):
        return None
    if model.head_transform is not None:
        return "transform.norm"
    return "norm" if model.has_final_norm else None


def attention_of(block: BlockSpec) -> Attention:
    """The block's mixer. Raises SpecError unless it is attention."""
    if not isinstance(block.mixer, Attention):
        raise unknown("mixer", block.mixer.kind)
    return block.mixer

"""What a preset is made of, in a row: derived from its spec, never written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import zoo
from zoo.axis import Spec
from zoo.presets import Preset
from zoo.spec import BlockSpec

PATHS = {
    "norm": "norm.kind",
    "placement": "norm_placement.kind",
    "topology": "topology",
    "position": "mixer.position.kind",
    "activation": "ffn.kind",
}
"""The columns of a row that name a part, and where that part is in a block."""


def _kv_heads(kv_heads: int, mixer: Any) -> str:
    return "MQA" if kv_heads == 1 else "MHA" if kv_heads == mixer.heads else f"GQA {kv_heads}"


def _mixer(kind: str, _: Any) -> str:
    return {"mla": "MLA"}.get(kind, kind)


def _scores(scale: float, _: Any) -> str:
    return "unscaled scores" if scale == 1 else f"scores × {scale:.3g}"


def _embeddings(scale: float | str, _: Any) -> str:
    return "embeddings × √D" if scale == "sqrt_d_model" else f"embeddings × {scale:.3g}"


def _rope_scaling(scaling: Any, _: Any) -> str:
    kind = {"linear": "linear RoPE", "yarn": "YaRN", "ntk": "NTK"}.get(scaling.kind, scaling.kind)
    return f"{kind} × {scaling.factor:g}" if hasattr(scaling, "factor") else str(kind)


def _biases(projections: tuple[str, ...], _: Any) -> str:
    names = "".join(projections).upper()
    return "biases" if names == "QKVO" else f"{names} bias"


def _experts(experts: int, ffn: Any) -> str:
    shared = f" + {ffn.shared_experts} shared" if ffn.shared_experts else ""
    return f"MoE {ffn.top_k} of {experts}{shared}"


WORDS: dict[str, str | Callable[[Any, Any], str]] = {
    "mixer.qk_norm": "QK-norm",
    "mixer.softcap": "score softcap {:g}",
    "final_softcap": "logit softcap {:g}",
    "z_loss": "z-loss",
    "mixer.clip_qkv": "QKV clip {:g}",
    "mixer.sinks": "attention sinks",
    "mixer.gate": "attention gate",
    "mixer.value_residual": "value residual",
    "embedding_norm": "embedding norm",
    "mixer.kind": _mixer,
    "mixer.kv_heads": _kv_heads,
    "mixer.window": "window {}",
    "mixer.position.fraction": "{:.0%} rotary",
    "mixer.position.scaling": _rope_scaling,
    "ffn.experts": _experts,
    "ffn.capacity_factor": "capacity {:g}",
    "ffn.router_z_loss": "router z-loss",
    "mixer.bias": _biases,
    "mixer.scale": _scores,
    "embedding_scale": _embeddings,
    "logit_scale": "logits × {:.3g}",
    "mtp": "multi-token prediction",
}
"""Settings in the field's words, in the order of a row: a pattern for the value, or a function of it and its part.
A setting that is not here is told by its own name, so that a new variant needs no word."""
USUAL = BlockSpec()
ALWAYS = {"ffn.experts"}
"""Settings told at their default too."""
DETAILS = {
    "vocab_size", "d_model", "n_layers", "block", "blocks", "first", "pattern", "embedding_dropout",
    "tie_embeddings", "final_norm", "head_bias",
    "mixer.heads", "mixer.head_dim", "mixer.position", "mixer.dropout", "mixer.qk_norm_over",
    "mixer.nope_dim", "mixer.rope_dim", "mixer.v_dim", "mixer.q_rank", "mixer.kv_rank",
    "mixer.position.kind", "mixer.position.base", "mixer.position.layout", "mixer.position.length",
    "mixer.position.offset",
    "norm_placement.kind", "ffn.kind", "ffn.d_ff", "ffn.bias", "ffn.approximate", "ffn.activation",
    "ffn.top_k", "ffn.shared_experts", "ffn.score", "ffn.groups", "ffn.top_groups", "ffn.group_score",
    "ffn.normalise", "ffn.scale", "ffn.router_bias", "ffn.multiple_of", "ffn.balance_loss", "ffn.bias_rate",
}  # fmt: skip
"""Settings left to the preset itself: sizes, what has a column of its own, and what explains another setting."""


def preset_row(preset: Preset) -> dict[str, Any]:
    """What `ablate zoo --json` says of a preset."""
    parts = _built(preset.spec) if preset.buildable else _claimed(preset.parts)
    return {
        "name": preset.name,
        "year": preset.year,
        **parts,
        "parameters": zoo.cost(preset.spec).params if preset.buildable else None,
        "published_parameters": preset.published_parameters,
        "source": preset.source,
    }


def mark(preset: Preset, path: str) -> str:
    """* where the source does not say what is at this path of a block or of the model, † where something stands in."""
    marked = {"*": preset.assumed, "†": preset.stand_ins}
    said = [sign for sign, paths in marked.items() for one in map(_in_block, paths) if f"{path}.".startswith(f"{one}.")]
    return said[0] if said else ""


def _in_block(path: str) -> str:
    """`mixer.window`, of `block.mixer.window` and of `blocks.local.mixer.window`."""
    head, _, rest = path.partition(".")
    return rest.partition(".")[2] if head == "blocks" else rest if head == "block" else path


def _built(spec: zoo.ModelSpec) -> dict[str, Any]:
    layers = spec.layers
    return {
        "norm": _each(layer.norm.kind for layer in layers),
        "placement": _each(layer.norm_placement.kind for layer in layers),
        "topology": _each(layer.topology for layer in layers),
        "position": _each(getattr(layer.mixer, "position", layer.mixer).kind for layer in layers),
        "activation": _each(_activation(layer.ffn) for layer in layers),
        "tricks": [words for _, words in tricks(spec)],
    }


def _claimed(parts: dict[str, Any]) -> dict[str, Any]:
    """What little is said of a model that cannot be built."""
    return {column: _at(parts.get("block"), path) for column, path in PATHS.items()} | {"tricks": []}


def _at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = {"kind": data}.get(key) if isinstance(data, str) else (data or {}).get(key)
    return data


def _each(words: Iterable[str]) -> str:
    """The words, each once, in the order of the layers."""
    return ", ".join(dict.fromkeys(words))


def _activation(ffn: Any) -> str:
    """The layer's kind, or that of its experts."""
    inside = getattr(ffn, "activation", None)
    return inside if isinstance(inside, str) else str(ffn.kind)


def tricks(spec: zoo.ModelSpec) -> list[tuple[str, str]]:
    """Path and words of what a row says beside its columns; where only some layers have it, in how many of a turn of
    the pattern. What the first layers lack is left out."""
    turn, first = (
        Counter(told for name in names for told in _of_block(spec.written(name)))
        for names in (spec.pattern, spec.first)
    )
    length = len(spec.pattern)
    of_turn = [
        (path, words if layers == length else f"{words} ({layers} of {length} layers)")
        for (path, words), layers in turn.items()
    ]
    of_first = [(path, f"{words} (first layers)") for path, words in first if (path, words) not in turn]
    return sorted([*_of_part("", spec), *of_turn, *of_first], key=_rank)


def _rank(told: tuple[str, str]) -> int:
    order = list(WORDS)
    return order.index(told[0]) if told[0] in WORDS else len(order)


def _of_block(block: Any) -> Iterator[tuple[str, str]]:
    if block.topology == "parallel_two_norms":
        yield "topology", "a norm per branch"
    if block.mixer.kind != USUAL.mixer.kind:
        yield "mixer.kind", _mixer(block.mixer.kind, block.mixer)
    yield from _of_part("norm_placement.", block.norm_placement)
    yield from _of_part("mixer.", block.mixer)
    yield from _of_part("mixer.position.", getattr(block.mixer, "position", None))
    yield from _of_part("ffn.", block.ffn)


def _of_part(prefix: str, part: Any) -> Iterator[tuple[str, str]]:
    """The path and the words of each setting that is told."""
    for name, field in type(part).model_fields.items() if part is not None else ():
        path, value = prefix + name, getattr(part, name)
        changed = value != field.get_default(call_default_factory=True)
        if path in ALWAYS or (changed and path not in DETAILS):
            yield path, _in_words(path, value, part)


def _in_words(path: str, value: Any, part: Any) -> str:
    words = WORDS.get(path)
    if words is None:
        return f"{path.rpartition('.')[2]} {text(value)}"
    return words.format(value) if isinstance(words, str) else words(value, part)


def text(value: Any) -> str:
    """A value as it is shown: a part by its kind, true as yes."""
    if isinstance(value, Spec):
        return str(getattr(value, "kind", value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value))
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)

"""A model of the same parts at a size that trains in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.block_spec import BlockSpec
from zoo.spec import BASE, ModelSpec, parse

D_MODEL, HEADS, VOCABULARY = 64, 4, 256

MOST = {
    "window": 8,
    "length": 512,
    "original_length": 64,
    "experts": 8,
    "shared_experts": 1,
    "top_k": 2,
    "groups": 4,
    "top_groups": 2,
    "state": 16,
}
"""Settings that are cut to this where they are larger."""
WIDTHS = {"d_ff", "q_rank", "kv_rank"}
"""Settings that keep their ratio to d_model, up to 8."""
HEAD_WIDTHS = {"head_dim", "nope_dim", "rope_dim", "v_dim"}
"""Settings that keep their ratio to d_model / heads, up to 4."""


def shrink(spec: ModelSpec) -> ModelSpec:
    """Each kind of block of the pattern, at least two layers in all, at d_model 64.

    Widths keep their ratio to d_model as nearly as multiples of 8 allow. Four heads: as many kv heads, one, or two,
    where the model has as many, one, or something between.
    """
    first, pattern = tuple(dict.fromkeys(spec.first)), tuple(dict.fromkeys(spec.pattern))
    blocks = {name: _block(spec.named(name), spec.d_model) for name in (BASE, *spec.blocks)}
    width = spec.embedding_dim
    return parse(
        {
            **spec.dump(),
            "vocab_size": min(spec.vocab_size, VOCABULARY),
            "d_model": D_MODEL,
            "n_layers": len(first) + max(2, len(pattern)),
            "block": blocks.pop(BASE),
            "blocks": blocks,
            "first": first,
            "pattern": pattern,
            "embedding_dim": None if width is None else _eights(width * D_MODEL / spec.d_model),
            "encoder": None if spec.encoder is None else {**spec.encoder.model_dump(), "n_layers": 2},
            "logit_scale": D_MODEL**-0.5 if spec.logit_scale == spec.d_model**-0.5 else spec.logit_scale,
        }
    )


@dataclass(frozen=True)
class _Ratio:
    """Small to full size, for features of the stream and for features of a head."""

    stream: float
    head: float


def _block(block: BlockSpec, d_model: int) -> dict[str, Any]:
    """A resolved block as plain data for d_model 64."""
    heads = getattr(block.mixer, "heads", HEADS)
    stream = D_MODEL / d_model
    data: dict[str, Any] = _small(_with_default_scale(block, d_model), _Ratio(stream, stream * heads / HEADS))
    return data


def _with_default_scale(block: BlockSpec, d_model: int) -> dict[str, Any]:
    """Plain data that leaves the score's scale to the size of the heads where the block does."""
    data = block.model_dump(mode="json")
    if "scale" in data["mixer"] and block.mixer.model_copy(update={"scale": None}).resolve(d_model) == block.mixer:
        data["mixer"]["scale"] = None
    return data


def _small(data: Any, ratio: _Ratio) -> Any:
    if not isinstance(data, dict):
        return data
    small = {key: _small(value, ratio) for key, value in data.items()}
    for key, value in data.items():
        if value is None or isinstance(value, dict):
            continue
        if key in MOST:
            small[key] = min(value, MOST[key])
        elif key in WIDTHS:
            small[key] = _eights(min(value * ratio.stream, 8 * D_MODEL))
        elif key in HEAD_WIDTHS:
            small[key] = _eights(min(value * ratio.head, 4 * D_MODEL / HEADS))
    if "heads" in data:
        small |= _heads(data)
    if data.get("scale") and "head_dim" in small:
        # Gemma's 1/√168 at d = 128 is 1/√21 at d = 16, to the last bit.
        small["scale"] = round(data["scale"] ** -2 * small["head_dim"] / data["head_dim"], 9) ** -0.5
    return small


def _heads(data: dict[str, Any]) -> dict[str, int]:
    small = {"heads": HEADS}
    for name in {"kv_heads", "k_heads"} & data.keys():
        small[name] = {data["heads"]: HEADS, 1: 1}.get(data[name], HEADS // 2)
    return small


def _eights(features: float) -> int:
    """The nearest multiple of 8 that is not zero."""
    return 8 * max(1, round(features / 8))

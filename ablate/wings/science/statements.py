"""Claims in words."""

from __future__ import annotations

from store.documents import StudyClaim
from store.documents.claims import COSTS, LOSS

WORDS = {
    LOSS: ("lower loss", "higher loss", "the same loss"),
    "kv_bytes": ("smaller KV cache", "larger KV cache", "the same KV cache"),
    "decode_time": ("faster decoding", "slower decoding", "the same decoding time"),
    "train_time": ("faster training", "slower training", "the same training time"),
    "memory": ("less peak memory", "more peak memory", "the same peak memory"),
    "parameters": ("fewer parameters", "more parameters", "the same number of parameters"),
}
"""Words for better, worse and the same, by measure; a score is called better, worse or the same."""


def statement(claim: StudyClaim) -> str:
    """`double: lower loss than pre, by 0.02 nats`, `the lowest loss first: swiglu, geglu, relu`."""
    if claim.order:
        what = "lowest loss" if claim.measure == LOSS else f"best {claim.measure}"
        return f"{what} first: {', '.join(claim.order)}"
    if claim.expect == "stalls":
        return f"{claim.arm}: every seed fails to train"
    name = claim.measure.replace("/", " ")
    better, worse, same = WORDS.get(claim.measure, (f"better {name}", f"worse {name}", f"the same {name}"))
    said = {"better": better, "worse": worse, "same": same}[str(claim.expect)]
    linked = "as" if claim.expect == "same" else "than"
    other = f" {linked} {claim.against}" if claim.against else ""
    bound = "within" if claim.expect == "same" else "by"
    return f"{claim.arm}: {said}{other}" + (f", {bound} {size(claim)}" if claim.by else "")


def size(claim: StudyClaim) -> str:
    """The claimed size of a difference: `0.02 nats`, `a factor of 8`, or the bare number of a score."""
    if claim.measure in COSTS:
        return f"a factor of {claim.by:g}"
    return f"{claim.by:g} nats" if claim.measure == LOSS else f"{claim.by:g}"


def origin(claim: StudyClaim) -> str:
    """`arXiv:2408.00118, 1 to 27 B parameters`; empty without a source."""
    return ", ".join(filter(None, (claim.source, claim.where)))

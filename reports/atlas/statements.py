"""Claims in words."""

from __future__ import annotations

from ablate.store.documents import StudyClaim
from ablate.store.documents.claims import ACCURACY, COSTS, LOSS

NOUNS = {
    "kv_bytes": "KV cache",
    "decode_time": "decoding time",
    "train_time": "training time",
    "memory": "memory in training",
    "parameters": "parameters",
}

EFFECT = {"better": "lowers", "worse": "raises", "same": "does not change"}
COMPARISON = {"better": "beats", "worse": "is worse than", "same": "matches"}


def statement(claim: StudyClaim) -> str:
    """`mqa needs less KV cache than mha, by a factor of 8`."""
    if claim.order:
        return f"In order, the best first: {', '.join(claim.order)}"
    if claim.expect == "stalls":
        return f"{claim.arm} does not train"
    return f"{_compared(claim)}{published(claim, ', ')}"


def published(claim: StudyClaim, before: str = "") -> str:
    """The size that a claim names: `by 0.02 nats`, `by a factor of 8`, `to within 0.02`; empty where it names none."""
    if claim.by is None:
        return ""
    if claim.expect == "same":
        return f"{before}to within {claim.by:g}"
    unit = "" if claim.measure != LOSS else " nats"
    return f"{before}by a factor of {claim.by:g}" if claim.measure in COSTS else f"{before}by {claim.by:g}{unit}"


def _compared(claim: StudyClaim) -> str:
    arm, other, expect = claim.arm, claim.against, str(claim.expect)
    than = f" than {other}" if other else ""
    if claim.measure == LOSS:
        if other is None:
            return f"{arm} {EFFECT[expect]} the loss"
        return f"{arm} {COMPARISON[expect]} {other}"
    if claim.measure in COSTS:
        noun = NOUNS[claim.measure]
        if expect == "same":
            return f"{arm} needs as much {noun} as {other}" if other else f"{arm} leaves {noun} as it is"
        less = "fewer" if claim.measure == "parameters" else "less"
        return f"{arm} needs {less if expect == 'better' else 'more'} {noun}{than}"
    score = "accuracy" if claim.measure == ACCURACY else f"score on {claim.measure.replace('/', ', ')}"
    if expect == "same":
        return f"{arm} reaches the same {score} as {other}" if other else f"{arm} does not change the {score}"
    return f"{arm} reaches a {'better' if expect == 'better' else 'worse'} {score}{than}"

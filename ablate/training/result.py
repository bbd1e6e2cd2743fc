"""The result document: what a run ended with, from its metrics and its machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ablate.training.spec import TrainSpec
from ablate.training.spikes import loss_spikes

if TYPE_CHECKING:
    import polars

UNMEASURED_STEPS = 5
"""Steps at the start of a run whose speed does not count: caches fill, memory is first touched, code is compiled."""
SPIKE = 5.0
"""A gradient norm above so many times the median is a spike."""
NAMED_SPIKES = 100
"""The steps of so many loss spikes are kept; all are counted."""
LAST = 0.1
"""The training loss of a run is the mean over this share of its last steps."""


def summarise_metrics(metrics: polars.DataFrame, warmup: int) -> dict[str, Any]:
    """Losses, speed and gradient norms over the training steps of a run."""
    steps = metrics.filter(metrics["lr"].is_not_null())
    losses, settled = steps["loss"], steps.filter(steps["step"] > warmup)
    return {
        "start_loss": losses[0],
        "train_loss": losses.tail(max(1, round(LAST * len(losses)))).mean(),
        "tokens_per_second": quartiles(_measured(steps["tokens_per_second"])),
        **_spikes(steps.drop_nulls("loss")),
        "grad_norm": _grad_norm(settled["grad_norm"] if len(settled) else steps["grad_norm"]),
    }


def _spikes(steps: polars.DataFrame) -> dict[str, Any]:
    found = loss_spikes(steps["loss"].to_numpy())
    if found is None:
        return {"loss_spikes": None, "loss_spike_steps": []}
    return {"loss_spikes": len(found), "loss_spike_steps": steps["step"].gather(found[:NAMED_SPIKES]).to_list()}


def quartiles(values: polars.Series) -> dict[str, float | None]:
    """Median and quartiles, with linear interpolation."""
    return {
        name: values.quantile(share, interpolation="linear")
        for name, share in (("median", 0.5), ("q25", 0.25), ("q75", 0.75))
    }


def _measured(speeds: polars.Series) -> polars.Series:
    return speeds.slice(min(UNMEASURED_STEPS, len(speeds) // 2))


def _grad_norm(norms: polars.Series) -> dict[str, Any]:
    """Before clipping, after warm-up. A norm that was not finite is null in the metrics, and not counted."""
    finite = norms.drop_nulls()
    median = finite.quantile(0.5, interpolation="linear")
    spikes = 0 if median is None else int((finite > SPIKE * median).sum())
    return {"median": median, "max": finite.max(), "spikes": spikes}


def model_flop_utilisation(
    flops_per_token: float, tokens_per_second: float | None, peak_flops_per_second: float
) -> float | None:
    """Share of the machine's matmul speed that the model's own arithmetic gets. PaLM, arXiv:2204.02311."""
    if tokens_per_second is None:
        return None
    return flops_per_token * tokens_per_second / peak_flops_per_second


def trained_tokens(spec: TrainSpec, step: int) -> int:
    return step * spec.batch * spec.context

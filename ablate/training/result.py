"""Fields of the result document, from the metrics of a run and its machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from ablate.training.divergence import loss_spikes
from store.documents import GradNorm, Quartiles

if TYPE_CHECKING:
    import polars

UNMEASURED_STEPS = 5
"""Steps at the start of a run whose speed does not count: caches fill, memory is first touched, code is compiled."""
SPIKE = 5.0
"""A gradient norm above this multiple of the median is a spike."""
NAMED_SPIKES = 100
"""Most loss spikes whose steps are stored; all are counted."""
LAST = 0.1
"""Share of the steps, at the end of a run, over which its training loss is averaged."""


class MetricsSummary(NamedTuple):
    """The fields of a result that summarise training steps, under the same names."""

    start_loss: float | None
    train_loss: float | None
    tokens_per_second: Quartiles
    loss_spikes: int | None
    loss_spike_steps: tuple[int, ...]
    grad_norm: GradNorm


def summarise_metrics(metrics: polars.DataFrame, warmup: int, shared: int = 0) -> MetricsSummary:
    """Losses, speed and gradient norms over the training steps of a run. shared: first steps, which another run took:
    its speed is not of this run's worker."""
    steps = metrics.filter(metrics["lr"].is_not_null())
    losses, settled = steps["loss"], steps.filter(steps["step"] > warmup)
    own = steps.filter(steps["step"] > shared)["tokens_per_second"]
    speeds = own.slice(min(UNMEASURED_STEPS, len(own) // 2))
    known = steps.drop_nulls("loss")
    loss_rises = loss_spikes(known["loss"].to_numpy())
    # Norms before clipping, after warm-up. Norms that were not finite are null in the metrics, and not counted.
    finite = (settled["grad_norm"] if len(settled) else steps["grad_norm"]).drop_nulls()
    median = finite.quantile(0.5, interpolation="linear")
    spikes = 0 if median is None else int((finite > SPIKE * median).sum())
    return MetricsSummary(
        losses[0],
        cast(float | None, losses.tail(max(1, round(LAST * len(losses)))).mean()),
        quartiles(speeds),
        None if loss_rises is None else len(loss_rises),
        () if loss_rises is None else tuple(known["step"].gather(loss_rises[:NAMED_SPIKES])),
        GradNorm(median=median, max=cast(float | None, finite.max()), spikes=spikes),
    )


def quartiles(values: polars.Series) -> Quartiles:
    """Median and quartiles, with linear interpolation."""
    q25, median, q75 = (cast(float, values.quantile(share, interpolation="linear")) for share in (0.25, 0.5, 0.75))
    return Quartiles(median=median, q25=q25, q75=q75)


def model_flop_utilisation(
    flops_per_token: float, tokens_per_second: float | None, peak_flops_per_second: float | None
) -> float | None:
    """Share of a machine's matmul speed that the model's own FLOPs reach; None if a speed is unknown. PaLM,
    arXiv:2204.02311."""
    if tokens_per_second is None or peak_flops_per_second is None:
        return None
    return flops_per_token * tokens_per_second / peak_flops_per_second

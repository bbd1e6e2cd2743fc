"""Metrics for which higher is better: recognised by name, and judged as losses with the sign reversed."""

from __future__ import annotations

import re
from dataclasses import replace

from ablate.wings.compare.losses import ArmContrast

HIGHER_IS_BETTER = re.compile(
    "acc(uracy)?|auc|au(pr|ro)c|bleu|chrf|correct|elo|em|exact|f1|iou|kappa|map|mcc|meteor|mrr|ndcg|pass|pearson|"
    "precision|psnr|r2|recall|returns?|rewards?|rouge(1|2|l|lsum)?|scores?|spearman|ssim|success|top[15]|win(s|rate)?"
)
"""Words in the names of metrics for which higher is better."""
LOWER_IS_BETTER = re.compile(
    "bits|bp[bt]|brier|[ctw]er|cost|entropy|errors?|loss(es)?|mae|r?mse|negative|nll|perplexity|ppl|regret|time"
)
"""Words that override those above: `score_error`, `negative_reward`."""


def seems_higher_is_better(metric: str) -> bool:
    """Whether a metric's name suggests that higher is better: `eval/acc_norm,none`, `winRate`, `Exact match`."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", metric)
    words = re.findall(r"[a-z]+\d*", spaced.casefold())
    return any(map(HIGHER_IS_BETTER.fullmatch, words)) and not any(map(LOWER_IS_BETTER.fullmatch, words))


def notes_on(metric: str, higher_is_better: bool) -> list[str]:
    """A note on the direction in which the metric is judged, if a reader may expect the other."""
    if higher_is_better:
        return [f"higher `{metric}` counts as better"]
    if seems_higher_is_better(metric):
        remedy = "if higher is better, use --higher-is-better (in Python higher_is_better=True)"
        return [f"lower `{metric}` counts as better, as for a loss: {remedy}"]
    return []


def facing(contrast: ArmContrast) -> ArmContrast:
    """A contrast of negated values, converted back to the given values; the verdict stays."""
    low, high, difference = (
        None if value is None else -value for value in (contrast.high, contrast.low, contrast.difference)
    )
    return replace(contrast, difference=difference, low=low, high=high)

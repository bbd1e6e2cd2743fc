"""Entropy of attention."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ablate.training.probes._kinds import TapProbe


class AttentionEntropy(TapProbe):
    """Attention entropy in nats, averaged over queries: the `mean` over heads, and that of the `lowest` head. Zhai et
    al. 2023, arXiv:2303.06296: training is unstable if it collapses to 0."""

    tap = "mixer.entropy"

    def read(self, shown: Tensor) -> Mapping[str, Tensor]:
        return {"mean": shown.mean(), "lowest": shown.min()}


PROBE = AttentionEntropy()

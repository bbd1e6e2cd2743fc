"""Variance of the residual stream."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ablate.training.probes._kinds import TapProbe


class ActivationVariance(TapProbe):
    """`variance` of the D features of the stream after a block, around their mean, averaged over tokens.

    Kim et al. 2025 (Peri-LN), arXiv:2502.02732, compare its growth with depth.
    """

    tap = "stream"

    def read(self, shown: Tensor) -> Mapping[str, Tensor]:
        return {"variance": shown.float().var(dim=-1, correction=0).mean()}


PROBE = ActivationVariance()

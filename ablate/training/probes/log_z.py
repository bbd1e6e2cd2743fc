"""log Z of the final logits."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ablate.training.probes._kinds import TapProbe


class LogZ(TapProbe):
    """log Σ exp of a token's logits: its `mean` over tokens, and its `mean_square`, of which the z-loss is a multiple.
    PaLM, arXiv:2204.02311 §5; Wortsman et al. 2023, arXiv:2309.14322."""

    tap = "log_z"

    def read(self, shown: Tensor) -> Mapping[str, Tensor]:
        return {"mean": shown.mean(), "mean_square": shown.square().mean()}


PROBE = LogZ()

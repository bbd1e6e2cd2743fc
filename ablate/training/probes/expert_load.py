"""Balance of expert use."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ablate.training.probes._kinds import TapProbe


class ExpertLoad(TapProbe):
    """`largest` and `smallest` share of the assignments that an expert got, times the number of experts E: both are 1
    if all are used alike. `largest` − 1 is the MaxVio of Wang et al. 2024, arXiv:2408.15664."""

    tap = "ffn.load"

    def read(self, shown: Tensor) -> Mapping[str, Tensor]:
        return {"largest": shown.max() * len(shown), "smallest": shown.min() * len(shown)}


PROBE = ExpertLoad()

"""The largest attention logit."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ablate.training.probes._kinds import TapProbe


class MaxAttentionLogit(TapProbe):
    """`max` over heads, queries and keys of the softmax's input. Dehghani et al. 2023, arXiv:2302.05442; Wortsman et
    al. 2023, arXiv:2309.14322: its growth predicts divergence, and QK-norm stops it."""

    tap = "mixer.max_logit"

    def read(self, shown: Tensor) -> Mapping[str, Tensor]:
        return {"max": shown.max()}


PROBE = MaxAttentionLogit()

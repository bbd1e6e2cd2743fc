"""GLU feed-forward layer."""

from __future__ import annotations

from typing import Literal

from zoo.ffns._dense import Gated


class GLU(Gated):
    """y = W_down (σ(W_gate x) ⊙ W_up x). Dauphin et al. 2017, arXiv:1612.08083; Shazeer 2020, arXiv:2002.05202."""

    kind: Literal["glu"] = "glu"

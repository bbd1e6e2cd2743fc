"""Length of token chunks."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ablate.training.probes._kinds import TapProbe


class ChunkLength(TapProbe):
    """`mean` number of tokens per chunk, in a model with layers that run on chunks. Declared FLOPs assume
    `chunks.ratio`."""

    tap = "borders"

    def read(self, shown: Tensor) -> Mapping[str, Tensor]:
        return {"mean": shown.numel() / shown.sum()}


PROBE = ChunkLength()

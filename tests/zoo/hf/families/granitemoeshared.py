from __future__ import annotations

import random

from transformers import GraniteMoeSharedConfig

from tests.zoo.hf.families.granitemoe import settings


def draw(rng: random.Random) -> GraniteMoeSharedConfig:
    return GraniteMoeSharedConfig(**settings(rng), shared_intermediate_size=rng.choice([0, 5, 24]))

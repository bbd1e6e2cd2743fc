from __future__ import annotations

import random

from transformers import FalconMambaConfig

from tests.zoo.hf.families.mamba import sizes


def draw(rng: random.Random) -> FalconMambaConfig:
    return FalconMambaConfig(**sizes(rng), mixer_rms_eps=rng.choice([1e-6, 1e-2]))

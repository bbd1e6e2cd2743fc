from __future__ import annotations

import random

from transformers import GlmMoeDsaConfig

from tests.zoo.hf.families import deepseek_v32


def draw(rng: random.Random) -> GlmMoeDsaConfig:
    return GlmMoeDsaConfig(**deepseek_v32.sparse(rng))

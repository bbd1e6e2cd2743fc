from __future__ import annotations

import random

from transformers import VaultGemmaConfig

from tests.zoo.hf.draws import rope
from tests.zoo.hf.families.gemma2 import shared


def draw(rng: random.Random) -> VaultGemmaConfig:
    dim = rng.choice([2, 8, 14])
    return VaultGemmaConfig(**shared(rng), head_dim=dim, rope_parameters=rope(rng, dim))

from __future__ import annotations

import random

from transformers import Gemma4UnifiedTextConfig

from tests.zoo.hf.families.gemma4_text import draw as draw_gemma4

ABSENT = ("enable_moe_block", "hidden_size_per_layer_input", "model_type", "vocab_size_per_layer_input")


def draw(rng: random.Random) -> Gemma4UnifiedTextConfig:
    settings = draw_gemma4(rng).to_dict()
    return Gemma4UnifiedTextConfig(**{key: value for key, value in settings.items() if key not in ABSENT})

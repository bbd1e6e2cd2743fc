from __future__ import annotations

import random

from transformers import GraniteMoeSWAConfig

from tests.zoo.hf.draws import rope, turned
from tests.zoo.hf.families.granite_swa import layers
from tests.zoo.hf.families.granitemoe import settings


def draw(rng: random.Random) -> GraniteMoeSWAConfig:
    own = settings(rng)
    own["rope_parameters"] = rope(rng, turned(own), ("default", "linear", "llama3"))
    shared = rng.choice([0, 5, 24])
    return GraniteMoeSWAConfig(**own, **layers(rng, own["num_hidden_layers"]), shared_intermediate_size=shared)

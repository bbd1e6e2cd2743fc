from __future__ import annotations

import random

from transformers import GraniteMoeHybridConfig

from tests.zoo.hf.draws import any_act, rope, turned
from tests.zoo.hf.families.bamba import mamba
from tests.zoo.hf.families.granitemoe import settings


def draw(rng: random.Random) -> GraniteMoeHybridConfig:
    own = settings(rng)
    own["num_hidden_layers"] = max(2, own["num_hidden_layers"])
    own |= {"hidden_act": any_act(rng), "rope_parameters": rope(rng, turned(own), ("default", "linear", "llama3"))}
    if rng.random() < 0.3:
        own |= {"num_local_experts": 0, "output_router_logits": False}
    # The first layer attends: transformers asks it how long the cache is.
    others = (rng.choice(["full_attention", "linear_attention"]) for _ in range(own["num_hidden_layers"] - 2))
    return GraniteMoeHybridConfig(
        **own,
        **mamba(rng, own["hidden_size"]),
        shared_intermediate_size=rng.choice([5, 24]),
        position_embedding_type=rng.choice([None, "rope"]),
        layer_types=["full_attention", *others, "linear_attention"],
    )

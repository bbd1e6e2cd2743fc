from __future__ import annotations

import random
from typing import Any

from transformers import MambaConfig

from tests.zoo.hf.draws import any_act, flag


def draw(rng: random.Random) -> MambaConfig:
    return MambaConfig(**sizes(rng))


def sizes(rng: random.Random) -> dict[str, Any]:
    return {
        "vocab_size": rng.randrange(40, 80),
        "hidden_size": rng.randrange(8, 30),
        "num_hidden_layers": rng.randrange(1, 4),
        "expand": rng.choice([1, 2]),
        "state_size": rng.randrange(3, 9),
        "time_step_rank": rng.choice(["auto", 1, 3]),
        "conv_kernel": rng.choice([2, 3, 4]),
        "use_bias": flag(rng),
        "use_conv_bias": flag(rng),
        "hidden_act": any_act(rng),
        "layer_norm_epsilon": rng.choice([1e-5, 1e-3]),
        "residual_in_fp32": flag(rng),
        "tie_word_embeddings": flag(rng),
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }

from __future__ import annotations

import random

from transformers import HunYuanMoEV1Config

from tests.zoo.hf.families.hunyuan_v1_dense import attention


def draw(rng: random.Random) -> HunYuanMoEV1Config:
    count = rng.choice([1, 3, 8])
    return HunYuanMoEV1Config(**attention(rng), num_experts=count, moe_topk=rng.randrange(1, min(count, 3) + 1))

"""Random draws of a training step: dropout masks, the branches that stochastic depth leaves out, and the state with
which a loop begins.

Torch's generators are reseeded at every step by (seed of the run, step). So every seed has masks of its own, and a
run that is interrupted and resumed draws what it would have drawn, whichever process goes on with it.
"""

from __future__ import annotations

import numpy as np
import torch


def seed_step(seed: int, step: int, device: str, rank: int = 0) -> None:
    """Seed the generators of the CPU and of `device` for 1-based `step` of a run with `seed`.

    rank: of a process that shares batches with others; what each draws for its rows is its own.

    The pair is hashed: neighbouring steps and seeds are to have unrelated masks, and torch's CPU generator takes no
    more than 32 bits of what it is given.
    """
    (word,) = np.random.SeedSequence((seed, step, rank) if rank else (seed, step)).generate_state(1, np.uint32).tolist()
    torch.default_generator.manual_seed(word)  # torch.manual_seed does as much in 200 times the time
    if device == "cuda":
        torch.cuda.manual_seed(word)

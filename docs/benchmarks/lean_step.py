"""A training step beside a plain decoder: `PYTHONPATH=. python docs/benchmarks/lean_step.py [ROUNDS] [compile]`.

The plain decoder (`tests/zoo/lean_decoder.py`) has the same weights, one matrix for each product. One thread, float32,
fused AdamW, alternating; prints medians of processor time and of the ratio with quartiles.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

import zoo
from evals.costs.memory import keep_freed_memory
from tests.zoo.lean_decoder import LeanDecoder
from tests.zoo.test_lean_step import seconds, step_of
from zoo.kernels.compiling import hold_constants

SIZES: dict[str, tuple[dict[str, Any], int, int]] = {
    "42 k, batch 6, context 128": ({"d_model": 24, "n_layers": 6, "vocab_size": 1024, "block.mixer.heads": 2}, 6, 128),
    "1 M, batch 8, context 256": ({"d_model": 128, "n_layers": 5, "vocab_size": 1024}, 8, 256),
    "5.8 M, batch 4, context 256": (
        {"d_model": 256, "n_layers": 6, "vocab_size": 4096, "block.mixer.heads": 8, "block.ffn.d_ff": 688}, 4, 256
    ),
}  # fmt: skip


def main(rounds: int = 25, compiled: bool = False) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    hold_constants()
    print("| parameters | this library, ms | plain decoder, ms | ratio |\n|---|---|---|---|")
    for name, (edits, batch, context) in SIZES.items():
        ours, plain = steps(edits, batch, context, compiled)
        taken = [(1000 * seconds(ours, 2) / 2, 1000 * seconds(plain, 2) / 2) for _ in range(rounds + 3)][3:]
        low, middle, high = statistics.quantiles((one / other for one, other in taken), n=4)
        times = " | ".join(f"{statistics.median(each):.1f}" for each in zip(*taken, strict=True))
        print(f"| {name} | {times} | {middle:.2f} ({low:.2f} to {high:.2f}) |", flush=True)


def steps(edits: dict[str, Any], batch: int, context: int, compiled: bool) -> list[Callable[[], None]]:
    model = zoo.build(zoo.load("small", **edits), seed=1).train()
    lean = LeanDecoder.of(model)
    tokens = torch.randint(model.spec.vocab_size, (batch, context + 1))
    read, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    losses: list[Any] = [lambda: model.loss(read, targets)[0], lambda: lean.loss(read, targets)]
    if compiled:
        losses = [torch.compile(loss, dynamic=False, fullgraph=True) for loss in losses]
    owners = (model, lean)
    return [step_of(owner.parameters(), loss) for owner, loss in zip(owners, losses, strict=True)]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), compiled="compile" in sys.argv)

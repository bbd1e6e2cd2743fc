"""K seeds of a model trained in one program or one after another: `python docs/benchmarks/ensembles.py [K]`.

Prints the ratio of processor time, measured in alternation, for two sizes, and the largest relative difference of the
gradients. One thread, float32, eager.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap

import zoo

SIZES = {(48, 2): 128, (128, 5): 256}
"""(width, layers) → context, for batches of 8 rows (the demo's has 16)."""
ROUNDS = 5


def main(seeds: int = 4) -> None:
    torch.set_num_threads(1)
    for (width, layers), context in SIZES.items():
        spec = zoo.load("small", d_model=width, n_layers=layers, vocab_size=1024)
        models = [zoo.build(spec, seed=seed).train() for seed in range(seeds)]
        tokens = torch.randint(1024, (seeds, 8, context + 1))
        apart, together = separate(models, tokens), stacked(models, tokens)
        one, other = apart(), together()
        worst = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(other, one, strict=True))
        ratios = [seconds(apart) / seconds(together) for _ in range(ROUNDS)]
        low, middle, high = (sorted(ratios)[i] for i in (0, ROUNDS // 2, ROUNDS - 1))
        size = sum(p.numel() for p in models[0].parameters()) / 1e6
        print(f"| {size:.2f} M | {middle:.2f} ({low:.2f} to {high:.2f}) | {worst:.0e} |", flush=True)


def separate(models: list[zoo.Decoder], tokens: Tensor) -> Callable[[], list[Tensor]]:
    def step() -> list[Tensor]:
        found = []
        for model, rows in zip(models, tokens, strict=True):
            model.zero_grad()
            model.loss(rows[:, :-1], rows[:, 1:])[0].backward()
            found.append([p.grad for p in model.parameters()])
        return [torch.stack(each) for each in zip(*found, strict=True)]

    return step


def stacked(models: list[zoo.Decoder], tokens: Tensor) -> Callable[[], list[Tensor]]:
    parameters, buffers = stack_module_state(models)
    names = [name for name, _ in models[0].named_parameters()]

    def loss(weights: dict[str, Tensor], kept: dict[str, Tensor], rows: Tensor) -> Tensor:
        logits = functional_call(models[0], (weights, kept), (rows[:, :-1],))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())

    gradients = vmap(grad(loss))

    def step() -> list[Tensor]:
        found = gradients(parameters, buffers, tokens)
        return [found[name] for name in names]

    return step


def seconds(step: Callable[[], object]) -> float:
    begin = time.process_time()
    step()
    return time.process_time() - begin


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

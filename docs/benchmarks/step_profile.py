"""Time of a training step by operation, beside transformers': `python docs/benchmarks/step_profile.py [STEPS]`.

The shape is that of training_cpu.md, in float32, one thread; with TINY=1 in the environment, a toy. Prints milliseconds
per step by kind of operation, excluding the operations that each calls. Compiled code is one kind, apart from the torch
operations that it calls.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import zoo
from ablate.wings.foretell.bench import Ours, Theirs
from evals.costs.memory import keep_freed_memory

TINY = os.environ.get("TINY") == "1"
SHAPE = {"d_model": 256, "n_layers": 6, "vocab_size": 4096, "block.mixer.heads": 8, "block.ffn.d_ff": 688}
ROWS, LENGTH = (2, 16) if TINY else (16, 256)
KINDS = {
    "attention": ("attention", "sdpa"),
    "matrix products": ("mm", "linear", "matmul"),
    "AdamW": ("adam",),
    "compiled code": ("compiled", "graph_", "compiledfunction"),
    "softmax, logsumexp": ("softmax", "logsumexp", "cross_entropy", "nll"),
    "memory filled or copied": ("copy", "empty", "zero", "fill", "clone", "contiguous", "cat", "_to", "repeat"),
}
"""Substrings of operation names, by category; the first category that matches counts."""
OTHER = "elementwise, reductions and the rest"


def main(count: int = 5) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    tokens = torch.randint(SHAPE["vocab_size"], (ROWS, LENGTH + 1))
    found = {name: profiled(step, tokens, count) for name, step in steps().items()}
    print("|", *found, sep=" | ", end=" |\n")
    print("|---" * (len(found) + 1), end="|\n")
    for kind in (*KINDS, OTHER):
        print("|", kind, "|", " | ".join(f"{each[kind]:.0f} ms" for each in found.values()), "|")
    print("| all |", " | ".join(f"{each.total():.0f} ms" for each in found.values()), "|")


def steps() -> dict[str, Callable[[Tensor], None]]:
    model = zoo.build(zoo.load("small", **SHAPE), seed=1).train()
    theirs = Theirs(zoo.to_hf(model))
    return {
        "eager": Ours(model, compile=False).trainer(),
        "compiled": Ours(model, compile=True).trainer(),
        "transformers, eager": theirs.trainer(),
    }


def profiled(step: Callable[[Tensor], None], tokens: Tensor, count: int) -> Counter[str]:
    """Milliseconds per step by kind of operation."""
    step(tokens)
    step(tokens)
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        for _ in range(count):
            step(tokens)
    found: Counter[str] = Counter()
    for event in trace.key_averages():
        found[kind_of(event.key)] += event.self_cpu_time_total / 1000 / count
    return found


def kind_of(operation: str) -> str:
    name = operation.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), OTHER)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

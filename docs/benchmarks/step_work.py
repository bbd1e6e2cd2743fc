"""Work of a training step on a GPU, counted on a CPU: `python docs/benchmarks/step_work.py`.

Prints kernels, bytes and FLOPs of the models of the GPU scales as Markdown: with norms written out as six operations,
with torch's fused norm, and compiled; then Muon's update, matrix by matrix and stacked. Tensors have no data, so
nothing is measured: milliseconds come from a roofline model.
"""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

import torch
from torch import Tensor

import zoo
from ablate.training.optimizers import muon
from ablate.training.spec import TrainSpec
from ablate.wings.foretell import operators, step_work
from ablate.wings.foretell.fusion import as_compiled
from ablate.wings.foretell.operators import Kernel, Operators, as_issued
from ablate.wings.foretell.roofline import step_seconds
from evals.costs.devices import device
from zoo.spec import ModelSpec

SCALES = {
    "gpu-minutes": ({"d_model": 256, "n_layers": 6, "vocab_size": 8192, "block.mixer.heads": 4}, 512),
    "gpu-hour": ({"d_model": 384, "n_layers": 8, "vocab_size": 8192, "block.mixer.heads": 6}, 1024),
    "gpu-day": ({"d_model": 512, "n_layers": 12, "vocab_size": 16384, "block.mixer.heads": 8}, 1024),
    "gpu-week": ({"d_model": 768, "n_layers": 12, "vocab_size": 32768, "block.mixer.heads": 12}, 1024),
}
BATCH = 64
H100 = device("h100")


def main() -> None:
    print("| scale | step | kernels | GB moved | TFLOP | H100, ms | bound |\n|---|---|--:|--:|--:|--:|---|")
    for scale, (size, context) in SCALES.items():
        spec = zoo.load("small", **size)
        with mock.patch.object(operators.FusedNorm, "apply", written_norm):
            _row(scale, "eager, norms written out", _kernels(spec, context), compiled=False)
        _row(scale, "eager, fused norms", _kernels(spec, context), compiled=False)
        _row(scale, "compiled", _kernels(spec, context, compile=True), compiled=True)
    spec = zoo.load("small", **SCALES["gpu-minutes"][0])
    for name, kind in (("matrix by matrix", torch.optim.Muon), ("stacked", muon.StackedMuon)):
        with mock.patch.object(muon, "StackedMuon", kind):
            kernels = _kernels(spec, 512, optimizer="muon")
        found = as_issued([each for each in kernels if each.phase == "update"])
        launches = sum(each.times for each in kernels if each.phase == "update")
        print(f"Muon's update, {name}: {launches:,} kernels, {found.bytes / 1e9:.2f} GB")


def written_norm(_: Operators, x: Tensor, gain: Tensor | None) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return wide.to(x.dtype) if gain is None else wide.to(x.dtype) * gain


def _kernels(spec: ModelSpec, context: int, **train: object) -> Sequence[Kernel]:
    settings = TrainSpec.model_validate({"context": context, "batch": BATCH, "dtype": "bfloat16", **train})
    return step_work.kernels_of(spec, settings)


def _row(scale: str, name: str, kernels: Sequence[Kernel], *, compiled: bool) -> None:
    work = as_compiled(kernels) if compiled else as_issued(kernels)
    found = step_seconds(work, H100, "bfloat16", compiled=compiled)
    cells = (f"{work.launches:,}", f"{work.bytes / 1e9:.1f}", f"{work.flops / 1e12:.2f}", f"{1000 * found.seconds:.1f}")
    print(f"| `{scale}` | {name} | {' | '.join(cells)} | {found.bound} |", flush=True)


if __name__ == "__main__":
    main()

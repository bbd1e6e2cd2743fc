"""Work of a training step on a GPU, counted on a CPU: `python docs/benchmarks/step_work.py [SCALE…]`.

Prints kernels, bytes and FLOPs of the models of the GPU scales as Markdown: with norms written out as six operations,
with torch's fused norm, compiled as our estimate has it, and as torch's own compiler has it, which traces the loss as
training calls it, divides it into two passes and schedules their kernels; no code is generated. Then Muon's update,
matrix by matrix and stacked. Nothing is measured: milliseconds come from a roofline model.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config
from torch._inductor.decomposition import select_decomp_table

import zoo
from ablate.machine.numerics import Numerics
from ablate.training.optimizers import muon
from ablate.training.spec import TrainSpec
from ablate.wings.foretell import operators, step_work
from ablate.wings.foretell.operators import Kernel, Operators, Work, as_issued
from ablate.wings.foretell.roofline import step_seconds
from ablate.wings.foretell.step_memory import learner_of, whole_batch
from ablate.wings.foretell.step_work import as_compiled
from evals.costs.devices import device
from tests.evals.costs.compiler_count import UPDATE_BYTES, Counted, counting, partition
from zoo.spec import ModelSpec

SCALES = {
    "gpu-minutes": ({"d_model": 256, "n_layers": 6, "vocab_size": 8192, "block.mixer.heads": 4}, 512),
    "gpu-hour": ({"d_model": 384, "n_layers": 8, "vocab_size": 8192, "block.mixer.heads": 6}, 1024),
    "gpu-day": ({"d_model": 512, "n_layers": 12, "vocab_size": 16384, "block.mixer.heads": 8}, 1024),
    "gpu-week": ({"d_model": 768, "n_layers": 12, "vocab_size": 32768, "block.mixer.heads": 12}, 1024),
}
BATCH = 64
H100 = device("h100")


def main(scales: Sequence[str]) -> None:
    print("| scale | step | kernels | GB moved | TFLOP | H100, ms | bound |\n|---|---|--:|--:|--:|--:|---|")
    for scale in scales or SCALES:
        size, context = SCALES[scale]
        spec = zoo.load("small", **size)
        with mock.patch.object(operators.FusedNorm, "apply", written_norm):
            _row(scale, "eager, norms written out", as_issued(_kernels(spec, context)), compiled=False)
        _row(scale, "eager, fused norms", as_issued(_kernels(spec, context)), compiled=False)
        estimate = as_compiled(_kernels(spec, context, compile=True))
        _row(scale, "compiled, estimated", estimate, compiled=True)
        found = scheduled(spec, context)
        of_torch = Work(estimate.flops, found.product_bytes, found.other_bytes, found.kernels)
        _row(scale, "compiled, as torch schedules it", of_torch, compiled=True)
    spec = zoo.load("small", **SCALES["gpu-minutes"][0])
    for name, kind in (("matrix by matrix", torch.optim.Muon), ("stacked", muon.StackedMuon)):
        with mock.patch.object(muon, "StackedMuon", kind):
            kernels = _kernels(spec, 512, optimizer="muon")
        update = as_issued([each for each in kernels if each.phase == "update"])
        launches = sum(each.times for each in kernels if each.phase == "update")
        print(f"Muon's update, {name}: {launches:,} kernels, {update.bytes / 1e9:.2f} GB")


class Scheduled(BaseException):
    """Both passes are scheduled, and need not run. No error: Dynamo would report it as one of the compiler's."""


def scheduled(spec: ModelSpec, context: int) -> Counted:
    """Kernels and bytes of both passes, as inductor schedules them for a CPU, and of AdamW's update."""
    found, train = Counted(), _train(context, compile=True)
    learner, model = learner_of(spec, train, Numerics("cpu", "bfloat16", "highest"), None, False)
    batch, backward = whole_batch(train, spec, context), counting(found, backward=True)

    def last(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
        backward(graph, inputs)
        raise Scheduled

    backend = aot_autograd(
        fw_compiler=counting(found, backward=False),
        bw_compiler=last,
        partition_fn=partition,
        decompositions=select_decomp_table(),
    )
    loss = torch.compile(learner.loss, dynamic=False, fullgraph=True, backend=backend)
    at_once = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
    with at_once, config.patch(fallback_random=True), learner.numerics.autocast(), suppress(Scheduled):
        loss(batch.tokens, batch.targets, **batch.given)
    sizes = [parameter.numel() for parameter in model.parameters()]
    found.other_bytes += UPDATE_BYTES * sum(sizes)
    found.kernels += 3 * -(-len(sizes) // 32)
    return found


def written_norm(_: Operators, x: Tensor, gain: Tensor | None) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return wide.to(x.dtype) if gain is None else wide.to(x.dtype) * gain


def _train(context: int, **settings: object) -> TrainSpec:
    return TrainSpec.model_validate({"context": context, "batch": BATCH, "dtype": "bfloat16", **settings})


def _kernels(spec: ModelSpec, context: int, **settings: object) -> Sequence[Kernel]:
    found = step_work.traced(spec, _train(context, **settings), context)
    return () if found is None else found.kernels


def _row(scale: str, name: str, work: Work, *, compiled: bool) -> None:
    found = step_seconds(work, H100, "bfloat16", compiled=compiled)
    cells = (f"{work.launches:,}", f"{work.bytes / 1e9:.1f}", f"{work.flops / 1e12:.2f}", f"{1000 * found.seconds:.1f}")
    print(f"| `{scale}` | {name} | {' | '.join(cells)} | {found.bound} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

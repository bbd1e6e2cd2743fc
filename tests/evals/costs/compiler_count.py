"""Kernels and bytes of a training step as torch's compiler would have them, and its FLOPs as torch counts them.

AOTAutograd traces both passes of a plain decoder, torch's partitioner chooses what is kept for the backward pass, and
inductor fuses; its scheduler says what each kernel reads and writes. Nothing is generated, compiled or run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from functorch.compile import aot_function, make_boxed_func, min_cut_rematerialization_partition
from torch._guards import detect_fake_mode
from torch._inductor import config
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import ExternKernelSchedulerNode
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx import GraphModule
from torch.utils.flop_counter import FlopCounterMode

from tests.evals.costs.plain_decoder import PlainDecoder, Shape

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # they load parts of torch that it has deprecated
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.fx_passes.post_grad import post_grad_passes

UPDATE_BYTES = 40
"""Of a parameter: AdamW reads and writes weight and two moments and reads the gradient; clipping reads it for its norm,
and reads and writes it."""


@dataclass
class Counted:
    """flops: of products. product_bytes: moved by them and by attention; other_bytes: by the rest."""

    flops: float = 0.0
    product_bytes: float = 0.0
    other_bytes: float = 0.0
    kernels: int = 0

    def add(self, graph: GraphModule, inputs: Sequence[Any], backward: bool) -> None:
        """Add the kernels of one pass."""
        with V.set_fake_mode(detect_fake_mode(inputs)), V.set_debug_handler(DebugContext()):
            post_grad_passes(graph, False)
            lowered = GraphLowering(graph, inputs, is_backward=backward)
            with V.set_graph_handler(lowered):
                lowered.run(*inputs)
                lowered._update_scheduler()
                for node in lowered.scheduler.nodes:
                    moved = node.get_read_write_buffers_sizes()
                    self.kernels += moved > 0
                    if isinstance(node, ExternKernelSchedulerNode):
                        self.product_bytes += moved
                    else:
                        self.other_bytes += moved


def count(shape: Shape) -> Counted:
    """A whole step of the plain decoder, in bfloat16 with weights in float32."""
    found = Counted()
    with FakeTensorMode(allow_non_fake_inputs=True), config.patch(fallback_random=True):
        model = PlainDecoder(shape)
        tokens = torch.zeros(shape.batch, shape.context, dtype=torch.long)
        with FlopCounterMode(display=False) as flops:
            model(tokens, tokens).backward()
        model.zero_grad()
        given = dict(model.named_parameters()) | dict(model.named_buffers())
        compiled = aot_function(
            lambda given, tokens: functional_call(model, given, (tokens, tokens)),
            fw_compiler=counting(found, backward=False),
            bw_compiler=counting(found, backward=True),
            partition_fn=partition,
            decompositions=select_decomp_table(),
        )
        compiled(given, tokens).backward()
    found.flops = flops.get_total_flops()
    sizes = [parameter.numel() for parameter in model.parameters()]
    found.other_bytes += UPDATE_BYTES * sum(sizes)
    found.kernels += 3 * -(-len(sizes) // 32)
    return found


def counting(found: Counted, backward: bool) -> Callable[..., Any]:
    """A compiler of one pass that counts its kernels and leaves it as it is."""

    def compiler(graph: GraphModule, inputs: Sequence[Any]) -> Any:
        run = make_boxed_func(graph.forward)
        found.add(GraphModule(graph, graph.graph), inputs, backward)
        return run

    return compiler


def partition(joint: GraphModule, *given: Any, **settings: Any) -> Any:
    """The two passes, with what torch's own partitioner keeps between them."""
    joint_graph_passes(joint)
    return min_cut_rematerialization_partition(joint, *given, compiler="inductor", **settings)

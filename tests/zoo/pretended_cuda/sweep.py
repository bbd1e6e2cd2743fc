# ruff: noqa: E402 (the guard is loaded before torch)
"""A training step of every choice on a device that is not there. Run in a process of its own, with the guard's path.

Prints {choice: {"error": str | None, "reads": {place: times}}} as JSON. A host read is where a program waits for the
device: `.item()`, `.tolist()`, `int()`, `bool()` and what needs them inside, such as bincount.
"""

from __future__ import annotations

import ctypes
import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)  # before torch, which looks for devices once

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.cuda.amp import common
from torch.nn import functional as F

from zoo.conformance.combinations import given_to, random_tokens
from zoo.decode import Sampling
from zoo.ffns._experts import Experts
from zoo.matrix import axes, combine
from zoo.model import Decoder
from zoo.spec import ModelSpec

ROOT = Path(__file__).parents[3]
LENGTH = 19
reads: Counter[str] = Counter()


def main() -> None:
    pretend()
    options = [option for of in axes().values() for option in of][int(sys.argv[2]) :: int(sys.argv[3])]
    found = {str(option): outcome(lambda option=option: step(combine([option]))) for option in options}
    print(json.dumps(found | {"a token is drawn": outcome(draw_one)}))


def outcome(of: Callable[[], None]) -> dict[str, Any]:
    reads.clear()
    error = None
    try:
        of()
    except Exception as raised:  # every kind is what is looked for
        error = f"{place(traceback.extract_tb(raised.__traceback__))}: {type(raised).__name__}: {raised}"
    return {"error": error, "reads": dict(reads)}


def step(spec: ModelSpec) -> None:
    """Forward and backward in bfloat16."""
    model = Decoder(spec).train()
    with FakeTensorMode() as mode:

        def moved(value: Tensor) -> Tensor:
            return mode.from_tensor(value).to("cuda")

        for module in model.modules():
            for name, value in list(module.named_parameters(recurse=False)):
                setattr(module, name, torch.nn.Parameter(moved(value)))
            for name, value in list(module.named_buffers(recurse=False)):
                setattr(module, name, moved(value))
        given = {name: moved(value) for name, value in given_to(spec, 2, LENGTH).items()}
        tokens = moved(random_tokens(spec, 2, LENGTH + 1))
        with torch.autocast("cuda", torch.bfloat16):
            loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:], **given)
        loss.backward()
    assert loss.device.type == "cuda"
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert (parameter.grad.device.type, parameter.grad.dtype) == ("cuda", parameter.dtype), name


def draw_one() -> None:
    """With a generator of the CPU, as whoever wants the same text on every device has."""
    with FakeTensorMode():
        logits, text = torch.zeros(2, 7, device="cuda"), torch.zeros(2, 3, dtype=torch.long, device="cuda")
        chosen = Sampling(temperature=1.0, top_p=0.9).choose(logits, text, generator=torch.Generator())
    assert chosen.device.type == "cuda"


def pretend() -> None:
    common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    F.scaled_dot_product_attention = products
    torch.multinomial = drawn
    for name, value in {"item": 1, "__int__": 1, "__index__": 1, "__float__": 1.0, "__bool__": True}.items():
        setattr(Tensor, name, counting(name, getattr(Tensor, name), lambda _, value=value: value))
    run = Experts._run
    Experts._run = lambda self, rows, load: run(self, rows, EvenLoad(len(rows), len(load)))


@dataclass
class EvenLoad:
    """Of experts, whose choice of rows is not known."""

    rows: int
    experts: int

    def tolist(self) -> list[int]:
        reads[f"tolist in {place(traceback.extract_stack())}"] += 1
        return [(self.rows + expert) // self.experts for expert in range(self.experts)]


def counting(name: str, real: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    def read(tensor: Tensor, *args: Any, **settings: Any) -> Any:
        if not isinstance(tensor, FakeTensor) or tensor.device.type != "cuda":
            return real(tensor, *args, **settings)
        reads[f"{name} in {place(traceback.extract_stack())}"] += 1
        return fake(tensor, *args, **settings)

    return read


def place(stack: traceback.StackSummary) -> str:
    """The innermost line of the zoo's."""
    frames = [frame for frame in stack if Path(frame.filename).is_relative_to(ROOT / "zoo")]
    return f"{Path(frames[-1].filename).relative_to(ROOT)}:{frames[-1].lineno}" if frames else "?"


def drawn(weights: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Zeros: fake tensors do not check the generator's device, which multinomial does."""
    if generator is not None and generator.device != weights.device:
        raise RuntimeError(f"a generator on {generator.device} for weights on {weights.device}")
    return weights.new_zeros(len(weights), count, dtype=torch.long)


def products(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, *, enable_gqa: bool = False, **_: Any
) -> Tensor:
    """Attention by products, since the choice of a kernel asks the driver. Raises for what the kernels refuse."""
    if torch.is_autocast_enabled("cuda"):
        q, k, v = (x.to(torch.get_autocast_dtype("cuda")) for x in (q, k, v))
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"queries {q.dtype}, keys {k.dtype}, values {v.dtype}")
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, torch.float32, q.dtype):
        raise TypeError(f"queries {q.dtype}, mask {attn_mask.dtype}")
    if q.shape[1] != k.shape[1]:
        assert enable_gqa
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2)
    if attn_mask is not None:
        scores = torch.where(attn_mask, scores, 0) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(dim=-1).to(v.dtype) @ v


if __name__ == "__main__":
    main()

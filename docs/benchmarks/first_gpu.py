"""The parts of `first_gpu.sh`: `python docs/benchmarks/first_gpu.py PART DEVICE [ITEM…]`.

PART is versions, default, kernels, steps, compiled, choices, attention or decoding. ITEM is an arm or a choice;
default: all. With TINY=1 in the environment, models are toys. A failure is printed and the rest goes on, in a new
process after a device error, since nothing works in the old one afterwards.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import zoo
from ablate.training.compiling import compiled
from ablate.wings.foretell.bench import Ceilings, measured, share
from zoo.attend import executed_backends
from zoo.attending.fused import chosen_kernel
from zoo.conformance.combinations import choices, given_to, random_model, random_tokens
from zoo.conformance.matrix import combine
from zoo.kernels.compiling import hold_constants
from zoo.kernels.fla import use_fla
from zoo.spec import ModelSpec

TINY = os.environ.get("TINY") == "1"
ARMS: dict[str, dict[str, Any]] = {
    "base": {},
    "window": {"block.mixer.window": 8 if TINY else 256},
    "T5 bias": {"block.mixer.position": "t5"},
    "softcap": {"block.mixer.softcap": 50.0},
    "experts": {"block.ffn": "topk_moe"},
    "MLA": {"block.mixer": "mla"},
    "ALiBi": {"block.mixer.position": "alibi"},
    "Gated DeltaNet": {"block.mixer": "gated_deltanet"},
    "Mamba-2": {"block.mixer": "mamba2"},
}
BACKENDS = {
    "window": ("varlen", "flex", "band", "fused", "plain"),
    "T5 bias": ("flex", "plain"),
    "softcap": ("flex", "plain"),
    "ALiBi": ("flex", "fused", "plain"),
    "base": ("flex", "fused", "plain"),
}
"""Attention backends that support each arm."""
LINEAR = "Gated DeltaNet", "Mamba-2"
"""Arms for which flash-linear-attention has kernels."""
SIZE = (
    {"d_model": 32, "n_layers": 2, "vocab_size": 256} if TINY else {"d_model": 768, "n_layers": 12, "vocab_size": 32768}
)
LARGE = SIZE if TINY else {"d_model": 2048, "n_layers": 20, "vocab_size": 32768}
"""1 B parameters, at which decoding is memory-bound."""
DEFAULT = {} if TINY else {"d_model": 384, "n_layers": 8, "vocab_size": 8192}
"""The model of `gpu-hour`."""
DEFAULT_ROWS = 2 if TINY else 64
ROWS, LENGTH = (2, 16) if TINY else (16, 1024)
STEPS = 3 if TINY else 10
WAYS = "eager", "compiled", "compiled by blocks"
Items = Mapping[str, Callable[[], str]]
"""Checks of one part, by name; each returns a line of results."""


def main(part: str, device: str, *names: str) -> None:
    torch.set_float32_matmul_precision("highest" if part == "choices" else "high")
    items = PARTS[part](device)
    left = list(names or items)
    while left:
        name = left.pop(0)
        try:
            print(f"{name}: {items[name]()}", flush=True)
        except Exception as error:  # report any failure
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)
            if "CUDA error" in str(error) and left:
                os.execv(sys.executable, [sys.executable, __file__, part, device, *left])


def versions(device: str) -> Items:
    found = {
        "platform": lambda: f"{platform.platform()}, python {platform.python_version()}",
        "torch": lambda: f"{torch.__version__}, CUDA {torch.version.cuda}",
        "transformers": lambda: version("transformers"),
        "cuDNN": lambda: str(torch.backends.cudnn.version()),
        "attention kernel of the GPU scales": lambda: ", ".join(_kernel_of(heads, device) for heads in (4, 6, 8, 12)),
        "ceilings": lambda: str(measured(torch.device(device), _kind(device))),
    }
    return {**found, "device": lambda: str(torch.cuda.get_device_properties(0))} if device == "cuda" else found


def _kernel_of(heads: int, device: str) -> str:
    """Attention backend that torch chooses for training with heads of 64 features."""
    shape = 1, heads, LENGTH, 64
    q, k, v = (torch.empty(shape, device=device, dtype=_kind(device), requires_grad=True) for _ in range(3))
    return f"{heads} heads: {chosen_kernel(q, k, v)}"


def default_scale(device: str) -> Items:
    """Training steps of `gpu-hour`, for arms whose norms an unfused step overrates. Runs compile whole steps. Blocks
    compiled one by one compile faster, but the operations between them are not fused."""
    top = measured(torch.device(device), _kind(device))
    arms = {"pre": {}, "double": {"block.norm_placement": "double"}, "gelu": {"block.ffn": "gelu"}}
    return {
        f"{arm}, {how}": lambda edits=edits, how=how: _step({**DEFAULT, **edits}, device, how, top, DEFAULT_ROWS)
        for arm, edits in arms.items()
        for how in (WAYS if arm == "pre" else WAYS[:2])
    }


def kernels(device: str) -> Items:
    """Kernels of `gpu-hour`'s step, the longest first."""
    return {how: lambda how=how: _longest(_trainer(DEFAULT, device, how, DEFAULT_ROWS), device) for how in WAYS[:2]}


def _longest(step: Callable[[], None], device: str) -> str:
    """Milliseconds per step by kernel, the longest first."""
    _seconds(step, device)
    _seconds(step, device)
    with profile(activities=[ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU]) as trace:
        for _ in range(STEPS):
            _seconds(step, device)
    took = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    found = sorted(trace.key_averages(), key=lambda each: -getattr(each, took))
    lines = [
        f"{getattr(each, took) / 1000 / STEPS:7.2f} ms in {each.count // STEPS}: {each.key[:99]}" for each in found[:20]
    ]
    whole = sum(getattr(each, took) for each in found) / 1000 / STEPS
    return "\n  ".join([f"{whole:.1f} ms in {len(found)} kinds", *lines])


def choices_alike(device: str) -> Items:
    """Compare every choice between the CPU and the device, in float32 at full precision, so that differences are not
    due to rounding."""
    specs = {str(option): combine([option]) for options in choices().values() for option in options}
    names = list(specs)[:: 20 if TINY else 1]
    return {name: lambda name=name: _difference(specs[name], device) for name in names}


def _difference(spec: ModelSpec, device: str) -> str:
    one, other = (_numbers(spec, where) for where in ("cpu", device))
    worst = max(float((a - b).abs().max() / (1e-6 + a.abs().max())) for a, b in zip(one, other, strict=True))
    return f"{worst:.1e}{'  LARGE' if worst > 1e-3 else ''}"


def _numbers(spec: ModelSpec, device: str) -> list[torch.Tensor]:
    """Loss, gradients, and, for causal models, logits of a prompt and of the next token through a cache."""
    model = random_model(spec).to(device)
    tokens = random_tokens(spec, 2, 12).to(device)
    given = {name: value.to(device) for name, value in given_to(spec, 2, 11).items()}
    loss, _ = model.eval().loss(tokens[:, :-1], tokens[:, 1:], **given)
    loss.backward()
    found = [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]
    if spec.visible == "causal" and spec.encoder is None:
        with torch.no_grad():
            cache = model.new_cache(2, 12)
            found += [model(tokens[:, :-1], cache=cache), model(tokens[:, -1:], cache=cache)]
    return [each.detach().float().cpu() for each in found]


def steps(device: str, how: str = "eager") -> Items:
    top = measured(torch.device(device), _kind(device))
    names = list(ARMS)[: 2 if TINY else None]
    items = {name: lambda name=name: _step(ARMS[name], device, how, top) for name in names}

    def in_kernels(arm: str) -> str:
        return _step(ARMS[arm], device, how, top) if use_fla() else "fla-core is not installed"

    # last, because the kernels stay enabled
    kernels = {f"{arm} in kernels": lambda arm=arm: in_kernels(arm) for arm in LINEAR}
    return {**items, **kernels} if device == "cuda" else items


def attention(device: str) -> Items:
    """Training steps by attention backend: whether `zoo.attend.pick` picks the fastest."""
    top = measured(torch.device(device), _kind(device))

    def forced(arm: str, backend: str) -> str:
        with zoo.attention_backend(backend):
            return _step(ARMS[arm], device, "eager", top)

    lacking = {"varlen"} if device == "cpu" else set()
    pairs = [(arm, backend) for arm, backends in BACKENDS.items() for backend in backends if backend not in lacking]
    return {f"{arm} by {backend}": lambda pair=(arm, backend): forced(*pair) for arm, backend in pairs}


def _trainer(edits: Mapping[str, Any], device: str, how: str, rows: int) -> Callable[[], None]:
    """A training step: forward, backward and AdamW update."""
    model = _model(edits, device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loss_of = compiled(model.loss) if how == "compiled" else model.loss
    if how == "compiled by blocks":
        hold_constants()
        for block in model.blocks:
            block.compile(dynamic=False)
    tokens = torch.randint(model.spec.vocab_size, (rows, LENGTH + 1), device=device)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss, _ = loss_of(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _step(edits: Mapping[str, Any], device: str, how: str, top: Ceilings, rows: int = ROWS) -> str:
    """Time, memory and host reads of a training step."""
    step = _trainer(edits, device, how, rows)
    with executed_backends(training=True) as backends:
        first = _seconds(step, device)
    _forget_peak(device)
    taken = statistics.median(_seconds(step, device) for _ in range(STEPS))
    found = f"{1000 * taken:.1f} ms, {_peak(device)}first step {first:.0f} s"
    found += f", {_host_reads(step, device)} host reads"
    reached = share("train", _spec(edits), LENGTH, rows, _kind(device), rows * LENGTH / taken, top)
    return (
        f"{found}, {100 * reached:.1f} % of matrix products' FLOP/s, attention by {', '.join(sorted(backends)) or '-'}"
    )


def decoding(device: str) -> Items:
    """Greedy decoding from a prompt of 32 tokens, with 0.1 B and 1 B parameters."""
    top = measured(torch.device(device), _kind(device))
    tried = [({}, 1, False), ({}, 1, True), (LARGE, 1, True), ({}, 8, False), ({}, 8, True), (LARGE, 1, False)]
    names = [
        f"{'1 B' if size else '0.1 B'}, batch {batch}, {'compiled' if compile else 'eager'}"
        for size, batch, compile in tried
    ]
    return {name: lambda how=how: _decoded(device, top, *how) for name, how in zip(names, tried, strict=True)}


def _decoded(device: str, top: Ceilings, size: Mapping[str, Any], batch: int, compile: bool) -> str:
    count, kind = 8 if TINY else 200, _kind(device)
    model = _model(size, device).eval().to(kind)
    prompt = torch.randint(model.spec.vocab_size, (batch, 32), device=device)

    def write() -> None:
        zoo.generate(model, prompt, count, compile=compile)

    first = _seconds(write, device)
    speed = batch * count / statistics.median(_seconds(write, device) for _ in range(3))
    reached = share("decode", model.spec, 32 + count // 2, batch, kind, speed, top)
    return f"{speed:,.0f} tokens/s, first {first:.0f} s, {100 * reached:.0f} % of a copy's bytes per second"


def _model(edits: Mapping[str, Any], device: str) -> zoo.Decoder:
    return zoo.build(_spec(edits)).to(device)


def _spec(edits: Mapping[str, Any]) -> ModelSpec:
    size = {**SIZE, **edits}
    heads = {} if "block.mixer" in edits else {"block.mixer.heads": 2 if TINY else size["d_model"] // 64}
    return zoo.load("small", **{**heads, **size})


def _kind(device: str) -> torch.dtype:
    return torch.bfloat16 if device == "cuda" else torch.float32


def _seconds(work: Callable[[], None], device: str) -> float:
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _host_reads(work: Callable[[], None], device: str) -> int:
    """Number of times that the host waits for the device."""
    if device != "cuda":
        return 0
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            work()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(each.message) for each in found)


def _forget_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def _peak(device: str) -> str:
    if device != "cuda":
        return ""
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return f"{allocated / 2**30:.2f} GiB of {reserved / 2**30:.2f} reserved, "


PARTS: dict[str, Callable[[str], Items]] = {
    "versions": versions,
    "default": default_scale,
    "kernels": kernels,
    "choices": choices_alike,
    "steps": steps,
    "compiled": partial(steps, how="compiled"),
    "attention": attention,
    "decoding": decoding,
}

if __name__ == "__main__":
    main(*sys.argv[1:])

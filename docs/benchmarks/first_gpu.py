"""The parts of `first_gpu.sh`: `python docs/benchmarks/first_gpu.py versions|choices|steps|attention|decoding DEVICE`.

With TINY=1 in the environment, models are toys.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch

import zoo
from zoo.conformance.combinations import choices, given_to, random_model, random_tokens
from zoo.matrix import combine
from zoo.spec import ModelSpec

TINY = os.environ.get("TINY") == "1"
ARMS: dict[str, dict[str, Any]] = {
    "base": {},
    "T5 bias": {"block.mixer.position": "t5"},
    "softcap": {"block.mixer.softcap": 50.0},
    "ALiBi": {"block.mixer.position": "alibi"},
    "window": {"block.mixer.window": 8 if TINY else 256},
    "MLA": {"block.mixer": "mla"},
    "Gated DeltaNet": {"block.mixer": "gated_deltanet"},
    "Mamba-2": {"block.mixer": "mamba2"},
    "experts": {"block.ffn": "topk_moe"},
}
WITHOUT_FLEX = {"base": "fused", "T5 bias": "plain", "softcap": "plain", "ALiBi": "fused", "window": "band"}
"""What is picked where flex is not."""
ROWS, LENGTH = (2, 16) if TINY else (16, 1024)
STEPS = 3 if TINY else 10


def main() -> None:
    part, device = sys.argv[1:]
    torch.set_float32_matmul_precision("high")
    {"versions": versions, "choices": compared, "steps": steps, "attention": attention, "decoding": decoding}[part](
        device
    )


def versions(device: str) -> None:
    print(platform.platform(), "python", platform.python_version())
    print("torch", torch.__version__, "CUDA", torch.version.cuda, "transformers", version("transformers"))
    if device == "cuda":
        print(torch.cuda.get_device_properties(0))


def compared(device: str) -> None:
    """In float32 and at full precision, so that what differs is not rounding."""
    torch.set_float32_matmul_precision("highest")
    specs = {str(option): combine([option]) for options in choices().values() for option in options}
    names = list(specs)[:: 20 if TINY else 1]
    worst: list[tuple[float, str]] = []
    for name in names:
        try:
            worst.append((_difference(specs[name], device), name))
        except Exception as error:  # every kind is what is looked for
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:160]}")
    worst.sort(reverse=True)
    print(
        f"{len(worst)} of {len(names)} choices ran; the largest relative differences of losses, gradients and logits:"
    )
    for difference, name in worst[:10]:
        print(f"  {difference:.1e}  {name}")


def _difference(spec: ModelSpec, device: str) -> float:
    one, other = (_numbers(spec, where) for where in ("cpu", device))
    return max(float((a - b).abs().max() / (1e-6 + a.abs().max())) for a, b in zip(one, other, strict=True))


def _numbers(spec: ModelSpec, device: str) -> list[torch.Tensor]:
    """Loss, gradients, and logits of a prompt and of a token after it through a cache."""
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


def steps(device: str) -> None:
    print("arm, ms eager, peak GiB eager, ms compiled, peak GiB compiled, seconds to compile")
    for name, edits in list(ARMS.items())[: 2 if TINY else None]:
        torch._dynamo.reset()
        try:
            print(
                name,
                *_step_figures(edits, device, False)[:2],
                *_step_figures(edits, device, True),
                sep=", ",
                flush=True,
            )
        except Exception as error:  # the next arm may run
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)


def attention(device: str) -> None:
    """Where flex_attention is the faster choice: `zoo.attend.pick` takes it wherever scores are edited or masked."""
    print("arm, backend, ms of a training step, peak GiB, seconds of the first step")
    for name, other in WITHOUT_FLEX.items():
        for backend in (other, "flex"):
            try:
                with zoo.attention_backend(backend):
                    print(name, backend, *_step_figures(ARMS[name], device, False), sep=", ", flush=True)
            except Exception as error:  # the next may run
                print(f"{name}, {backend}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)


def _step_figures(edits: dict[str, Any], device: str, compile: bool) -> tuple[str, ...]:
    model = _model(edits, device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loss_of = torch.compile(model.loss, dynamic=False) if compile else model.loss
    tokens = torch.randint(model.spec.vocab_size, (ROWS, LENGTH + 1), device=device)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss, _ = loss_of(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    first = _seconds(step, device)
    taken = statistics.median(_seconds(step, device) for _ in range(STEPS))
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else float("nan")
    return f"{1000 * taken:.1f}", f"{peak:.2f}", f"{first:.0f}"


def decoding(device: str) -> None:
    """Greedy, from a prompt of 32 tokens."""
    count = 8 if TINY else 200
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    model = _model({}, device).eval().to(kind)
    for batch in (1, 8):
        prompt = torch.randint(model.spec.vocab_size, (batch, 32), device=device)
        for compile in (False, True):

            def write(prompt: torch.Tensor = prompt, compile: bool = compile) -> None:
                zoo.generate(model, prompt, count, compile=compile)

            first = _seconds(write, device)
            taken = statistics.median(_seconds(write, device) for _ in range(3))
            how = "compiled" if compile else "eager"
            print(f"batch {batch}, {how}: {batch * count / taken:,.0f} tokens/s, first {first:.0f} s", flush=True)


def _model(edits: dict[str, Any], device: str) -> zoo.Decoder:
    size = (
        {"d_model": 32, "n_layers": 2, "vocab_size": 256}
        if TINY
        else {"d_model": 768, "n_layers": 12, "vocab_size": 32768}
    )
    heads = {} if "block.mixer" in edits else {"block.mixer.heads": 2 if TINY else 12}
    return zoo.build(zoo.load("small", **{**size, **heads, **edits})).to(device)


def _seconds(work: Callable[[], None], device: str) -> float:
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()

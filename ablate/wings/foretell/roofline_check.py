"""Error of the roofline on this machine, as Markdown: `python -m ablate.wings.foretell.roofline_check`.

Rounds alternate between the constants and the models. Other load can only slow them down, so the fastest round of each
counts, and the ratio of measured to predicted time is reported. One thread, timed by its processor time, float32.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import zoo
from ablate.wings.foretell.roofline import PredictedPhase, predict
from ablate.wings.foretell.this_machine import rate, this_device
from evals.costs.clock import quartiles
from evals.costs.devices import Device
from evals.costs.peaks import use_fast_float32
from evals.costs.point import Point
from evals.reading.passes import evaluating
from zoo.model import Decoder
from zoo.settings.edits import Edits
from zoo.spec import ModelSpec

MODELS: dict[str, Edits] = {
    "multi-head": {"block.mixer.heads": 8},
    "1 kv head": {"block.mixer": {"heads": 8, "kv_heads": 1}},
    "window 64": {"block.mixer": {"heads": 8, "window": 64}},
    "MLA": {"block.mixer": {"kind": "mla", "heads": 8, "kv_rank": 128, "nope_dim": 64, "rope_dim": 32}},
    "8 experts": {"block.mixer.heads": 8, "block.ffn": {"kind": "topk_moe", "experts": 8, "top_k": 2, "d_ff": 683}},
}
"""Edits of `SIZE`, whose weights of about 100 MB exceed the caches of most processors."""
SIZE: Edits = {"d_model": 512, "n_layers": 8, "vocab_size": 8192}
POINTS = ((256, 1), (1024, 1), (256, 8))
"""(context, batch) of each point."""
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class TimedPhase:
    """One phase of one model at one point. seconds: time of one pass in the fastest round."""

    model: str
    phase: str
    context: int
    batch: int
    seconds: float
    predicted: PredictedPhase

    @property
    def ratio(self) -> float:
        """Measured over predicted time; above 1, the roofline is too optimistic."""
        return self.seconds / self.predicted.seconds


def check(rounds: int, seconds: float) -> tuple[Device, list[TimedPhase]]:
    """This machine's constants, and every model at every point, each timed for `seconds` seconds per round."""
    models = {name: zoo.build(zoo.load("small", **SIZE, **edits)) for name, edits in MODELS.items()}
    devices: list[Device] = []
    fastest: dict[tuple[str, int, int, str], float] = {}
    for _ in range(rounds):
        devices.append(this_device("float32", clock=time.process_time))
        for key, passed in ((key, s) for name, model in models.items() for key, s in _timed(model, name, seconds)):
            fastest[key] = min(passed, fastest.get(key, passed))
    copied = max(d.bandwidth_bytes_per_second for d in devices)
    best = {  # each constant at its best
        "flops_per_second": {"float32": max(d.flops_per_second["float32"] for d in devices)},
        "bandwidth_bytes_per_second": copied,
        "bandwidth_share": max(d.bandwidth_share * d.bandwidth_bytes_per_second for d in devices) / copied,
        "overhead_seconds_per_layer": min(d.overhead_seconds_per_layer for d in devices),
    }
    device = devices[0].model_copy(update=best)
    return device, [_sample(models[key[0]].spec, key, passed, device) for key, passed in fastest.items()]


def _timed(model: Decoder, name: str, seconds: float) -> Iterator[tuple[tuple[str, int, int, str], float]]:
    """Seconds of one pass, by model, context, batch and phase."""
    with evaluating(model):
        for context, batch in POINTS:
            point = Point(model, context, batch, seconds, time.process_time)
            yield (name, context, batch, "prefill"), batch * context / rate(point.prefill())
            yield (name, context, batch, "decode"), batch / rate(point.decode())


def _sample(spec: ModelSpec, key: tuple[str, int, int, str], seconds: float, device: Device) -> TimedPhase:
    name, context, batch, phase = key
    # Decoding starts from a cache that holds the context: the first generated token sees one token more.
    seen = context + (phase == "decode")
    found = predict(spec, device, context=seen, batch=batch, dtype="float32")
    return TimedPhase(name, phase, context, batch, seconds, found.decode if phase == "decode" else found.prefill)


def table(found: list[TimedPhase]) -> Iterator[str]:
    """Markdown, one row per sample."""
    yield "| model | phase | context | batch | measured | predicted | bound by | measured / predicted |"
    yield "|---|---|---|---|---|---|---|---|"
    for s in sorted(found, key=lambda s: (s.phase, list(MODELS).index(s.model))):
        times = f"{1e3 * s.seconds:.2f} ms | {1e3 * s.predicted.seconds:.2f} ms"
        yield f"| {s.model} | {s.phase} | {s.context} | {s.batch} | {times} | {s.predicted.bound} | {s.ratio:.2f} |"


def summary(found: list[TimedPhase]) -> Iterator[str]:
    """The error of each phase."""
    for phase in ("prefill", "decode"):
        ratios = [sample.ratio for sample in found if sample.phase == phase]
        median = quartiles(ratios).median
        yield f"- {phase}: measured / predicted {median:.2f} (median), {min(ratios):.2f} to {max(ratios):.2f}"


def setting(device: Device, rounds: int) -> Iterator[str]:
    """The machine, the versions, and the constants."""
    listed = _CPUINFO.read_text() if _CPUINFO.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", listed, re.MULTILINE)
    processor = found[1] if found else platform.machine()
    yield (
        f"- {processor}, {torch.get_num_threads()} thread · Python {platform.python_version()} · "
        f"torch {torch.__version__} · float32, matmul precision {torch.get_float32_matmul_precision()} · "
        f"fastest of {rounds} rounds · {os.cpu_count()} processors, load average {os.getloadavg()[1]:.1f}"
    )
    yield (
        f"- constants: {device.flops_per_second['float32'] / 1e9:.0f} GFLOP/s · "
        f"{100 * device.bandwidth_share:.0f} % of {device.bandwidth_bytes_per_second / 1e9:.1f} GB/s · "
        f"{1e6 * device.overhead_seconds_per_layer:.0f} µs overhead per layer"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ablate.wings.foretell.roofline_check", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="per measurement (default: 0.3)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    use_fast_float32()
    device, found = check(options.rounds, options.seconds)
    print("\n".join((*setting(device, options.rounds), *summary(found), "", *table(found))))


if __name__ == "__main__":
    main()

"""Benchmark of a zoo model against transformers' model of the same architecture and weights: training step, prefill,
decoding.

Both are in one process and take turns, so that other load slows both; ratios are of neighbouring turns. Inputs are new
each round and the same for both. The first round warms up and is not counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zoo
from ablate.wings.foretell.rivals import rivals
from ablate.wings.foretell.this_machine import peak_growth
from evals.costs import peaks
from evals.costs.clock import quartiles, seconds_of
from evals.costs.memory import keep_freed_memory
from evals.costs.peaks import copy_bytes_per_second
from evals.reading.passes import evaluating
from store.documents import JsonObject
from zoo.attend import executed_backends
from zoo.caching.cache import Cache
from zoo.costs_decoding import decode_cost
from zoo.decode import compiled_step, roomy_cache
from zoo.kernels.compiling import hold_constants
from zoo.model import Decoder
from zoo.spec import ModelSpec

DECODED = 16
"""Tokens per row that a turn of decoding generates."""
OURS, THEIRS = "ablate", "transformers"
Work = Callable[[Tensor], object]


@dataclass(frozen=True)
class BenchSetting:
    """Tokens per row, rows, and counted rounds. compile: whether our training and decoding are compiled."""

    context: int
    batch: int
    rounds: int
    compile: bool = False


BenchDocument: TypeAlias = dict[str, Any]
"""Output of `ablate bench --json`: the setting, versions, and for each phase both sides and their ratio."""


class BenchTurn(NamedTuple):
    """One side's work on one batch. grown_bytes: peak growth of memory; None if the system does not report it.
    backends: attention backends that our model used."""

    seconds: float
    grown_bytes: int | None
    backends: Set[str]


TakeTurn = Callable[[str, Work, Tensor], BenchTurn]
"""phase, work, tokens → the turn."""


def take_turn(phase: str, work: Work, tokens: Tensor) -> BenchTurn:
    """Time one turn. The prompt of decoding is read before the timing starts."""
    timed: Callable[[], object] = work(tokens) if phase == "decode" else lambda: work(tokens)  # type: ignore[assignment]
    listening = executed_backends(training=phase == "train")
    with peak_growth(tokens.device) as growth, listening as executed:
        taken = seconds_of(timed, tokens.device, time.perf_counter)
    return BenchTurn(taken, growth.bytes, executed)


def compare(model: Decoder, setting: BenchSetting, turn: TakeTurn = take_turn) -> BenchDocument:
    """The bench document. Raises UnsupportedError if transformers has no such architecture."""
    keep_freed_memory()
    theirs = zoo.to_hf(model).to(device=model.device, dtype=model.embedding.weight.dtype)
    ours = Ours(model, setting.compile)
    trainer = ours.trainer()
    phases: dict[str, tuple[Work, Work]] = {
        "prefill": (ours.prefill, Theirs(theirs).prefill),
        "decode": (ours.decode, Theirs(theirs).decode),
        # Last, because it changes the weights.
        "train": (trainer, Theirs(theirs).trainer()),
    }
    top = measured(model.device, model.embedding.weight.dtype)
    return {
        "schema": 1,
        "parameters": sum(p.numel() for p in model.parameters()),
        "dtype": str(model.embedding.weight.dtype).removeprefix("torch."),
        "context": setting.context,
        "batch": setting.batch,
        "rounds": setting.rounds,
        "compiled": setting.compile,
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__, "transformers": version("transformers")},
        "ceilings": top._asdict(),
        "largest_difference": _largest_difference(model, theirs, setting),
        "phases": {name: _phase(name, model, sides, setting, top, turn) for name, sides in phases.items()},
        "training_beside": dict(_beside(model, trainer, theirs.config, setting, top, turn)),
    }


def _beside(
    model: Decoder, ours: Work, config: Any, setting: BenchSetting, top: Ceilings, turn: TakeTurn
) -> Iterator[tuple[str, JsonObject]]:
    """Our training step against that of each other installed library, one after another."""
    for name, theirs in rivals(config, setting.context):
        theirs.to(device=model.device, dtype=model.embedding.weight.dtype)
        found = _phase("train", model, (ours, _logits_trainer(theirs, theirs)), setting, top, turn, name)
        yield name, {"parameters": sum(p.numel() for p in theirs.parameters()), **found}


class Ours:
    """A zoo model, prefilled, decoded and trained in the fastest way that this package has."""

    def __init__(self, model: Decoder, compile: bool) -> None:
        self.model, self.compile = model, compile
        self._new_cache = partial(roomy_cache, model) if compile else model.new_cache
        self._further = compiled_step(model) if compile else self._logits

    def prefill(self, tokens: Tensor) -> tuple[Tensor, Cache]:
        with evaluating(self.model):
            cache = self._new_cache(tokens.shape[0], tokens.shape[1] + DECODED)
            return self._logits(tokens, cache).argmax(-1, keepdim=True), cache

    def decode(self, tokens: Tensor) -> Callable[[], None]:
        """Read the prompt; return a function that generates."""
        last, cache = self.prefill(tokens)

        def write() -> None:
            nonlocal last
            with evaluating(self.model):
                for _ in range(DECODED):
                    last = self._further(last, cache).argmax(-1, keepdim=True)

        return write

    def _logits(self, tokens: Tensor, cache: Cache) -> Tensor:
        return self.model.read_out(self.model.hidden(tokens, cache)[:, -1:])[:, 0]

    def trainer(self) -> Work:
        if self.compile:
            hold_constants()
        loss = torch.compile(self.model.loss, dynamic=False, fullgraph=True) if self.compile else self.model.loss
        return _trainer(self.model, lambda tokens: loss(tokens[:, :-1], tokens[:, 1:])[0])


class Theirs:
    """transformers' model with the same weights."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def prefill(self, tokens: Tensor) -> tuple[Tensor, Any]:
        self.model.eval()
        with torch.inference_mode():
            out = self.model(input_ids=tokens, use_cache=True, logits_to_keep=1)
        return out.logits.argmax(-1), out.past_key_values

    def decode(self, tokens: Tensor) -> Callable[[], None]:
        """Read the prompt; return a function that generates."""
        last, cache = self.prefill(tokens)

        def write() -> None:
            nonlocal last, cache
            with torch.inference_mode():
                for _ in range(DECODED):
                    out = self.model(input_ids=last, past_key_values=cache, use_cache=True, logits_to_keep=1)
                    last, cache = out.logits.argmax(-1), out.past_key_values

        return write

    def trainer(self) -> Work:
        return _logits_trainer(self.model, lambda tokens: self.model(input_ids=tokens, use_cache=False).logits)


def _logits_trainer(model: nn.Module, logits_of: Callable[[Tensor], Tensor]) -> Work:
    def loss(tokens: Tensor) -> Tensor:
        return F.cross_entropy(logits_of(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())

    return _trainer(model, loss)


def _trainer(model: nn.Module, loss_of: Callable[[Tensor], Tensor]) -> Work:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step(tokens: Tensor) -> None:
        model.train()
        loss = loss_of(tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _phase(
    name: str,
    model: Decoder,
    sides: tuple[Work, Work],
    setting: BenchSetting,
    top: Ceilings,
    turn: TakeTurn,
    other: str = THEIRS,
) -> JsonObject:
    """Turns of both sides, and the ratio per round: our speed / their speed."""
    draw = torch.Generator().manual_seed(0)
    seconds: dict[str, list[float]] = {OURS: [], other: []}
    memory: dict[str, int | None] = {}
    backends: set[str] = set()
    for number in range(setting.rounds + 1):
        shape = (setting.batch, setting.context + (name == "train"))
        tokens = torch.randint(model.spec.vocab_size, shape, generator=draw).to(model.device)
        pair = list(zip((OURS, other), sides, strict=True))
        for side, work in pair if number % 2 else pair[::-1]:
            taken = turn(name, work, tokens)
            backends |= taken.backends
            if number:
                seconds[side].append(taken.seconds)
                grown = memory.get(side), taken.grown_bytes
                memory[side] = max((each for each in grown if each is not None), default=None)
    ratios = [theirs / ours for ours, theirs in zip(seconds[OURS], seconds[other], strict=True)]
    count = setting.batch * (DECODED if name == "decode" else setting.context)

    def found(side: str) -> JsonObject:
        rates = quartiles([count / each for each in seconds[side]])
        dtype = model.embedding.weight.dtype
        used = share(name, model.spec, setting.context, setting.batch, dtype, rates.median, top)
        return {
            "tokens_per_second": rates.model_dump(),
            "peak_growth_bytes": memory[side],
            "share_of_ceiling": used,
        }

    return {
        **{side: found(side) for side in (OURS, other)},
        "ratio": quartiles(ratios).model_dump(),
        "attention": ", ".join(sorted(backends)) or None,
    }


def _largest_difference(model: Decoder, theirs: Any, setting: BenchSetting) -> float:
    """Largest |difference| of a log-probability on random tokens, to show whether both are the same model. Raises
    ValueError if it is not finite."""
    tokens = torch.randint(model.spec.vocab_size, (1, setting.context), generator=torch.Generator().manual_seed(1))
    tokens = tokens.to(model.device)
    theirs.eval()
    with evaluating(model):
        logits = (model(tokens).float(), theirs(input_ids=tokens).logits.float())
    ours, other = (each.log_softmax(-1) for each in logits)
    found = float((ours - other).abs().max())
    if not math.isfinite(found):
        raise ValueError("the two models' outputs are not finite")
    return found


class Ceilings(NamedTuple):
    """Peak rates: FLOPs of large matrix products, and bytes read and written in a copy of a large tensor."""

    flops_per_second: float
    copy_bytes_per_second: float


def measured(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Ceilings of this machine. Takes a second."""
    return Ceilings(peaks.peak_flops_per_second(device, dtype), copy_bytes_per_second(device))


def share(
    phase: str, spec: ModelSpec, context: int, batch: int, dtype: torch.dtype, tokens_per_second: float, top: Ceilings
) -> float:
    """Share that a phase reaches of its ceiling. For training and prefill: FLOP/s that the architecture needs, over
    those of matrix products. For decoding: bytes per second of weights and cache that steps read, over those of a copy;
    above 1 if they lie in the processor's caches."""
    if phase == "decode":
        step = decode_cost(spec, batch, context).bytes(dtype)
        return step * tokens_per_second / batch / top.copy_bytes_per_second
    cost = zoo.cost(spec, context)
    flops = cost.flops_per_token if phase == "train" else cost.flops_per_token_forward
    flops += (cost.flops_per_step if phase == "train" else cost.flops_per_pass) / (batch * context)
    return flops * tokens_per_second / top.flops_per_second

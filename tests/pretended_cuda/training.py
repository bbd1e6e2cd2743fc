"""Training runs whose batches come from the host, as they do in earnest."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import zoo
from ablate.machine.numerics import Numerics
from ablate.training import loop, session
from ablate.training.batch import Batch
from ablate.training.execution import Execution
from ablate.training.loop import Laps
from ablate.training.session import Session
from ablate.wings.starts import training as starts
from store import Store
from store.documents import RunTeacher
from tests.ablate.conftest import TinyCorpus, identity_of

STEPS = 2
SMALL = {"vocab_size": 24, "d_model": 32, "n_layers": 2}
HEADS = {"block.mixer.heads": 2}
RUNS: dict[str, dict[str, Any]] = {
    "training: a teacher": {"teacher": True},
    "training: muon": {"optimizer": "muon"},
    "training: lion": {"optimizer": "lion"},
    "training: sgd": {"optimizer": "sgd"},
    "training: chance": {"model": {"block.dropout": 0.2, "block.stochastic_depth": 0.3}},
    "training: experts": {"model": {"block.ffn": {"kind": "topk_moe", "experts": 4, "d_ff": 16, "bias": True}}},
    "training: parts of a batch": {"execution": {"microbatch": 2}},
    "training: blocks computed again": {"model": {"block.dropout": 0.2}, "execution": {"recompute": True}},
    "training: averaged weights": {"average": {"horizon": 0.5}},
    "training: adapters": {"lora": {"rank": 2, "dropout": 0.1}},
    "training: weights on the sphere": {"preset": "ngpt", "model": HEADS},
    "training: gemma 3n": {"preset": "gemma3n", "model": HEADS},
    "training: flex": {
        "model": {**HEADS, "block.mixer.softcap": 30.0, "block.mixer.position": "t5"},
        "context": 256,
        "batch": 2,
    },
    "training: varlen": {"model": {**HEADS, "block.mixer.window": 64}, "context": 256, "batch": 2},
    "training: flex: a prefix": {
        "model": {**HEADS, "visible": "prefix"},
        "objective": "prefix",
        "context": 256,
        "batch": 2,
    },
}


def train(
    *, preset: str = "small", model: Any = None, execution: Any = None, teacher: bool = False, **settings: Any
) -> None:
    """Steps of a run. Losses are read where training rests, after the last."""
    spec = zoo.load(preset, **SMALL, **(model or {}))
    numerics = Numerics("cuda", "bfloat16", "high")
    given = {"numerics": numerics.identity()}
    if teacher:
        given["teacher"] = RunTeacher(run="of some run", temperature=2.0, weight=0.5, top_k=4)
    run = identity_of(steps=STEPS, model=spec.dump(), **{"dtype": "bfloat16", **settings}).model_copy(update=given)
    with tempfile.TemporaryDirectory() as folder, FakeTensorMode() as mode:
        Batch.pinned = lambda batch: batch.each(mode.from_tensor)
        how = Execution.model_validate(execution or {})
        trained = Session(Store(Path(folder)), run, TinyCorpus(), numerics, how, rest_seconds=math.inf)
        assert sum(len(steps) for steps in trained.rehearse()) == STEPS
        for name, parameter in (trained.addition or trained.model).named_parameters():
            assert parameter.device.type == "cuda", name


def imagine() -> None:
    """Replace the clock of a GPU, moves of models to it, and the numbers of initial and trained weights."""
    loop.CudaLaps = Laps
    loop.prefetch = map  # a mode of fake tensors is not for two threads
    torch.nn.Module._apply = lambda module, _: module  # it would swap weights, which fake ones are where they belong
    session.initial_model = lambda _, identity: decoder(zoo.parse(identity.model))
    starts.source_model = lambda *_: decoder(zoo.load("small", **SMALL))


def decoder(spec: zoo.ModelSpec) -> zoo.Decoder:
    with torch.device("cuda"):
        return zoo.Decoder(spec)

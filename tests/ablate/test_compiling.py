"""Compiled training: one program per model and shape, and never an uncompiled one in silence."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch._dynamo.exc import FailOnRecompileLimitHit

import zoo
from ablate.running import rehearsal
from ablate.running.rehearsal import Rehearsal, Rehearsed
from ablate.training import compiling
from ablate.training.compiling import GraphBreakError, compiled, one_graph
from ablate.training.session import Session
from ablate.training.stop import Interrupted
from ablate.wings.execution.program_server import sharing
from evals.costs.alternation import Effort, Pace
from store import Store
from tests.ablate.conftest import metrics_without_clock
from zoo.attend import executed_backends


class Counting:
    """A backend that runs graphs as they are, and counts what was compiled and what ran."""

    def __init__(self) -> None:
        self.compiled = self.ran = 0

    def __call__(self, graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., Any]:
        self.compiled += 1

        def run(*given: Any) -> Any:
            self.ran += 1
            return graph.forward(*given)

        return run


pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),  # torch's own, when it loads inductor
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),  # also its own, after a graph break
]


@pytest.fixture(autouse=True)
def _settings_put_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(compiling.CACHE, str(tmp_path / "inductor"))
    torch.compiler.reset()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=False):
        yield


@pytest.fixture
def backend() -> Counting:
    return Counting()


def tiny() -> zoo.Decoder:
    return zoo.build(zoo.load("small", vocab_size=16, d_model=16, n_layers=1))


def windows(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.arange(2 * (length + 1)).view(2, -1) % 16
    return tokens[:, :-1], tokens[:, 1:]


@pytest.mark.slow
def test_every_model_of_many_is_compiled_once(backend):
    """Torch compiles a function eight times, and runs it uncompiled from then on."""
    models = [tiny() for _ in range(9)]
    losses = [compiled(model.loss, backend) for model in models]
    for _ in range(2):
        for model, loss in zip(models, losses, strict=True):
            torch.testing.assert_close(loss(*windows(8)), model.loss(*windows(8)))
    assert (backend.compiled, backend.ran) == (9, 18)


@pytest.mark.slow
def test_one_program_per_shape_and_no_silence_where_there_are_too_many(backend):
    loss = compiled(tiny().loss, backend)
    for length in range(2, 10):
        loss(*windows(length))
    assert backend.compiled == 8
    with pytest.raises(FailOnRecompileLimitHit):
        loss(*windows(10))


def test_models_of_one_spec_share_a_program_and_others_do_not(backend):
    with sharing():
        first, second = tiny(), zoo.build(zoo.load("small", vocab_size=16, d_model=16, n_layers=1), seed=7)
        compiled(first.loss, backend)(*windows(8))
        with executed_backends(training=True) as names:
            torch.testing.assert_close(compiled(second.loss, backend)(*windows(8)), second.loss(*windows(8)))
        assert (backend.compiled, backend.ran, names) == (1, 2, {"fused"})
        torch.testing.assert_close(compiled(second.loss, backend)(*windows(6)), second.loss(*windows(6)))
        assert backend.compiled == 2, "another shape"
        for number, edits in enumerate(({"d_model": 32}, {"block.norm_placement": "post"}, {"z_loss": 1e-3})):
            other = zoo.build(zoo.load("small", **{"vocab_size": 16, "d_model": 16, "n_layers": 1, **edits}))
            torch.testing.assert_close(compiled(other.loss, backend)(*windows(8)), other.loss(*windows(8)))
            assert backend.compiled == 3 + number, edits
    third = tiny()
    torch.testing.assert_close(compiled(third.loss, backend)(*windows(8)), third.loss(*windows(8)))
    assert backend.compiled == 6, "sharing has ended"


EXPERTS = {"kind": "topk_moe", "experts": 4, "top_k": 2, "d_ff": 8}
"""Each expert's number of rows is read on the host, where no kernel multiplies all at once."""


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Warnings in the log."""
    found: list[str] = []
    monkeypatch.setattr(compiling.LOG, "warning", lambda text, *values: found.append(text % values))
    return found


@pytest.mark.slow
def test_a_graph_break_is_named(warned):
    """In a part of the zoo, and in code of a user's own, as a plug-in has it. Losses are those of the uncompiled model,
    and the log names the line once."""
    mixture = zoo.build(zoo.load("small", vocab_size=16, d_model=16, n_layers=2, **{"block.ffn": EXPERTS}))
    foreign = tiny()
    foreign.blocks[0].register_forward_hook(lambda _module, _given, out: out * (1 if out.sum().item() else 2))
    for model, code in ((mixture, "load.tolist()"), (foreign, "out.sum().item()")):
        loss = compiled(model.loss, "eager")
        for _ in range(2):
            torch.testing.assert_close(loss(*windows(8)), model.loss(*windows(8)))
        (told,) = warned
        assert re.match(r"not compiled as one graph.*: \S+\.py:\d+, `.*", told)
        assert code in told
        warned.clear()


def test_where_a_speed_is_compared_a_graph_break_is_an_error(backend):
    model = zoo.build(zoo.load("small", vocab_size=16, d_model=16, n_layers=1, **{"block.ffn": EXPERTS}))
    with one_graph():
        broken, whole = compiled(model.loss, backend), compiled(tiny().loss, backend)
    for _ in range(2):
        with pytest.raises(GraphBreakError, match=r"not compiled as one graph: .*_experts.py:\d+, `.*tolist"):
            broken(*windows(8))
    assert backend.ran == 0
    whole(*windows(8))
    assert (backend.compiled, backend.ran) == (1, 1)


@pytest.mark.slow
def test_runs_that_share_a_program_of_several_graphs_all_say_so(warned):
    def mixture() -> zoo.Decoder:
        return zoo.build(zoo.load("small", vocab_size=16, d_model=16, n_layers=1, **{"block.ffn": EXPERTS}))

    with sharing():
        first, second = mixture(), mixture()
        compiled(first.loss, "eager")(*windows(8))
        compiled(second.loss, "eager")(*windows(8))
    assert [told[:25] for told in warned] == ["not compiled as one graph"] * 2


@pytest.mark.parametrize("compared", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_arm_of_several_graphs_is_not_compared_in_speed(compared, monkeypatch, tmp_path, identity, corpus):
    """A budget in seconds still asks for its time, which is that of its runs."""
    monkeypatch.setattr("ablate.training.session.compiled", partial(compiled, backend="eager"))
    monkeypatch.setattr(rehearsal, "open_corpus", lambda _: corpus)
    models: dict[str, dict[str, Any]] = {"dense": {}, "mixture": {"block": {"ffn": EXPERTS}}}
    arms = [
        Rehearsed(name=name, identity=identity(steps=10**6, compile=True, model=model), corpus="")
        for name, model in models.items()
    ]
    quick, measure = Pace(seconds=0.0, rounds=1), {"contexts": [16], "batches": [1]}
    settings = {"effort": Effort(judged=quick, drawn=quick), "store": str(tmp_path)}
    request = Rehearsal(arms=tuple(arms), measure=measure if compared else None, **settings)
    point = rehearsal._trained(request, arms, Random(0))
    assert set(point.seconds) == ({"dense"} if compared else set(models))
    assert [(name, "tolist" in why) for name, why in point.reasons.items()] == [("mixture", True)] * compared


def test_a_compiled_run_has_one_program_and_the_losses_of_an_eager_one(
    backend, monkeypatch, tmp_path, identity, corpus, numerics
):
    """The program is for training: held-out text is scored by the model itself."""
    monkeypatch.setattr("ablate.training.session.compiled", partial(compiled, backend=backend))
    losses = []
    for compile_ in (False, True):
        document = identity(steps=6, compile=compile_, validate_every=0.5)
        ending = Session(Store(tmp_path), document, corpus, numerics).run()
        assert ending.place.attention == "fused"
        metrics = Store(tmp_path).read_metrics(document.digest)
        losses.append([*metrics["loss"].drop_nulls(), *metrics["validation_loss"].drop_nulls()])
    assert (backend.compiled, backend.ran) == (1, 6)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_programs_are_kept_in_the_users_cache_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.delenv(compiling.CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled(tiny().loss)
    assert os.environ[compiling.CACHE] == str(tmp_path / "ablate" / "inductor")
    monkeypatch.setenv(compiling.CACHE, str(tmp_path / "elsewhere"))
    compiled(tiny().loss)
    assert os.environ[compiling.CACHE] == str(tmp_path / "elsewhere")
    monkeypatch.delenv(compiling.CACHE)
    monkeypatch.delenv("XDG_CACHE_HOME")
    compiled(tiny().loss)
    assert os.environ[compiling.CACHE] == str(Path.home() / ".cache" / "ablate" / "inductor")


@pytest.mark.slow
def test_a_run_compiled_in_earnest_resumes_to_the_same_bits(tmp_path, identity, corpus, numerics):
    """With chance in it: its masks are drawn inside the program."""
    document = identity(steps=6, compile=True, model={"block": {"dropout": 0.2, "stochastic_depth": 0.3}})
    whole, stopped = Store(tmp_path / "whole"), Store(tmp_path / "stopped")
    Session(whole, document, corpus, numerics).run()
    stops = iter([False, False, True])
    with pytest.raises(Interrupted):
        Session(stopped, document, corpus, numerics, rest_seconds=0.0, stop=lambda: next(stops)).run()
    Session(stopped, document, corpus, numerics).run()
    first, second = (metrics_without_clock(store.metrics_path(document.digest)) for store in (whole, stopped))
    assert first == second

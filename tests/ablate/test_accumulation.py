"""Batches trained on a few rows at a time: the same run to within rounding, whatever the objective."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo
from ablate.training.batch import Accumulation, Batch, MicrobatchError
from ablate.training.execution import Execution
from ablate.training.session import Session
from store import Store

Identity = Callable[..., Any]
BALANCED = {"kind": "deepseek_moe", "d_ff": 8, "experts": 8, "top_k": 2, "bias_rate": 0.01}
LIMITED = """
import resource, sys
import torch
from ablate.training.batch import Accumulation
from ablate.training.batch import Batch

torch.set_num_threads(1)
weight = torch.ones(4, requires_grad=True)

def loss(tokens, targets, part=None):  # 64 MiB for each row
    hidden = weight.sum() * torch.ones(len(tokens), 2**24)
    return hidden.mean() * (1.0 if part is None else part.rows), torch.ones(())

batch = Batch.next_token(torch.ones(8, 3, dtype=torch.long))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 600 * 2**20,) * 2)
accumulation = Accumulation("auto")
while True:
    weight.grad = None
    try:
        accumulation.gradients(loss, batch, torch.enable_grad)
        break
    except (RuntimeError, MemoryError) as error:
        accumulation.halve(batch, error)
print(accumulation.rows, weight.grad.tolist())
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def trained(store: Store, document: Any, corpus: Any, numerics: Any, **settings: Any) -> tuple[Session, list[float]]:
    session = Session(store, document, corpus, numerics, Execution(**settings), rest_seconds=0.0)
    session.run()
    return session, store.read_metrics(document.digest)["loss"].drop_nulls().to_list()


@pytest.mark.parametrize("settings", [{"microbatch": 1}, {"microbatch": 3}, {"recompute": True}], ids=str)
def test_a_run_in_less_memory_is_the_same_run(
    tmp_path: Path, identity: Identity, corpus: Any, numerics: Any, settings: dict[str, Any]
) -> None:
    """Rounding alone: 1e-4 nats after 12 steps. Of 4 rows, 3 at a time are 2, so that all parts have one shape."""
    document = identity(steps=12)
    whole, losses = trained(Store(tmp_path / "whole"), document, corpus, numerics)
    cut, again = trained(Store(tmp_path / "cut"), document, corpus, numerics, **settings)
    assert again == pytest.approx(losses, abs=1e-4)
    assert cut.place.validation_loss == pytest.approx(whole.place.validation_loss, abs=1e-4)
    assert (again == losses) is ("recompute" in settings)


@pytest.mark.parametrize(
    "settings", [{"microbatch": 1}, {"recompute": True}, {"microbatch": 1, "recompute": True}], ids=str
)
def test_experts_are_balanced_once_for_each_batch(
    tmp_path: Path, identity: Identity, corpus: Any, numerics: Any, settings: dict[str, Any]
) -> None:
    """The biases of routers, which move by the loads of a whole batch, end as they do in the plain run."""
    document = identity(steps=12, model={"block": {"ffn": BALANCED}})
    whole, losses = trained(Store(tmp_path / "whole"), document, corpus, numerics)
    other, again = trained(Store(tmp_path / "other"), document, corpus, numerics, **settings)
    assert again == pytest.approx(losses, abs=0 if settings == {"recompute": True} else 1e-4)
    biases = [session.model.blocks[0].ffn.router.selection_bias for session in (whole, other)]
    assert biases[0].abs().max() > 0.05
    torch.testing.assert_close(biases[1], biases[0], rtol=0, atol=1e-6)


def test_auto_takes_all_rows_while_they_fit(store: Store, identity: Identity, corpus: Any, numerics: Any) -> None:
    session, _ = trained(store, identity(steps=2), corpus, numerics, microbatch="auto")
    assert session.learner.accumulation.rows is None


def test_auto_halves_what_does_not_fit(store: Store, identity: Identity, corpus: Any, numerics: Any) -> None:
    """A device that holds two rows at most, and forgets half a backward pass, with what it counted."""
    document = identity(steps=3, model={"block": {"ffn": BALANCED}})
    session = Session(store, document, corpus, numerics, Execution(microbatch="auto"))
    plain = session.learner.loss

    def small(tokens: torch.Tensor, targets: torch.Tensor, **given: Any) -> Any:
        found = plain(tokens, targets, **given)
        if torch.is_grad_enabled() and len(tokens) > 2:
            found[0].backward()
            raise torch.OutOfMemoryError("CUDA out of memory")
        return found

    session.learner.loss = small
    with unittest.TestCase().assertLogs(level=logging.INFO) as said:
        session.run()
    whole, losses = trained(Store(store.root / "whole"), document, corpus, numerics)
    assert session.learner.accumulation.rows == 2
    routers = [each.model.blocks[0].ffn.router for each in (session, whole)]
    assert torch.equal(routers[0].selection_bias, routers[1].selection_bias)
    assert "out of memory with 4 rows per pass: continuing with 2" in "".join(said.output)
    assert store.read_metrics(document.digest)["loss"].drop_nulls().to_list() == pytest.approx(losses, abs=1e-4)


def test_what_does_not_fit_is_an_error_unless_halving_is_asked_for() -> None:
    batch, error = torch.zeros(4), torch.OutOfMemoryError("CUDA out of memory")
    for accumulation in (Accumulation(), Accumulation(2), Accumulation("auto", couples_rows="balance_loss")):
        with pytest.raises(torch.OutOfMemoryError):
            accumulation.halve(batch, error)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="shapes"):
        Accumulation("auto").halve(batch, RuntimeError("shapes"))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits its address space")
def test_memory_that_ends_on_a_cpu_is_halved_too() -> None:
    """600 MiB more than now, where a batch of 8 rows takes twice 512 MiB; Σ of 4 weights over all rows: 1 each."""
    found = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True).stdout.split()
    assert int(found[0]) in (1, 2, 4)
    assert [float(value.strip("[],")) for value in found[1:]] == pytest.approx([1.0] * 4)


def test_rows_that_depend_on_each_other_are_not_cut(
    store: Store, identity: Identity, corpus: Any, numerics: Any
) -> None:
    ffn = {"kind": "topk_moe", "d_ff": 8, "experts": 4, "top_k": 2, "balance_loss": 0.1}
    document = identity(steps=2, model={"block": {"ffn": ffn}})
    with pytest.raises(MicrobatchError, match=r"a batch cannot be split: balance_loss is over the whole batch"):
        Session(store, document, corpus, numerics, Execution(microbatch=2))


def test_masked_targets_weigh_as_in_the_whole_batch() -> None:
    """Rows of which unlike numbers of targets count: the mean over targets, not the mean of the rows' means."""
    spec = zoo.load("small", d_model=16, n_layers=1, vocab_size=11)
    model, tokens = zoo.build(spec), torch.arange(44).reshape(4, 11) % 11
    targets = tokens[:, 1:].clone()
    targets[0, 1:], targets[2, 4:] = -100, -100
    batch = Batch(tokens[:, :-1], targets)
    expected = float(model.loss(batch.tokens, batch.targets)[1])
    nats = Accumulation(1).gradients(model.loss, batch, torch.enable_grad)
    assert float(nats) == pytest.approx(expected, rel=1e-5)
    assert 0 < expected < 2 * math.log(11)

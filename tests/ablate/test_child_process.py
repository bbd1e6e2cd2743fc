"""What a library prints while it is loaded is no answer of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.running.engines.local import Pool
from ablate.running.rehearsal import CalibrationError, Rehearsal, Rehearsed, rehearse
from ablate.running.request import Request
from evals.costs.alternation import Effort, Pace
from tests.ablate.conftest import identity_of

NO_CORPUS = "has no prepared corpus"


@pytest.fixture(autouse=True)
def _printing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process of Python prints two lines before it does anything else."""
    (tmp_path / "sitecustomize.py").write_text("print('a library says hello\\n7', flush=True)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.slow
def test_a_run_ends_with_its_own_error(tmp_path: Path) -> None:
    request = Request(store=str(tmp_path / "runs"), corpus=str(tmp_path / "none"), identity=identity_of())
    *_, last = filter(None, Pool("cpu", [{}]).run([request]))
    assert (last.kind, last.digest) == ("failed", request.digest)
    assert NO_CORPUS in (last.error or "")


@pytest.mark.slow
def test_a_measurement_ends_with_its_own_error(tmp_path: Path) -> None:
    arm = Rehearsed(name="arm", identity=identity_of(), corpus=str(tmp_path / "none"))
    once = Effort(judged=Pace(seconds=0.0, rounds=1), drawn=Pace(seconds=0.0, rounds=1))
    request = Rehearsal(arms=(arm,), measure=None, effort=once, store=str(tmp_path / "runs"))
    with pytest.raises(CalibrationError, match=NO_CORPUS):
        rehearse(request, [{}], alone=True)

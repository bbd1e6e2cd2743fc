"""The optimizer of docs/adding_an_optimizer.md, dropped into its folder: one file, and a study is trained with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ablate.toy import toy_study
from tests.guides.guide import followed

PROGRAM = """
import contextlib, io
import torch
from pydantic import ValidationError
from torch import nn
from ablate.cli import main
from ablate.study.reading import load_study
from ablate.study.study import StudyError
from ablate.training.optimizers import Trained
from ablate.training.optimizers.signum import Signum

def run(*edits):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = main(["run", "toy.yaml", "--scale", "cpu", "--engine", "inprocess", "--json", *edits])
    assert status == 0, status
    return json.loads(out.getvalue())["arms"]

try:
    load_study(__import__("pathlib").Path("toy.yaml"), "cpu", ["train.optimizer={kind: signum, betta: 0.5}"])
except StudyError as error:
    refused = str(error)

start = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
parameter, expected, momentum = nn.Parameter(start.clone()), start.clone(), torch.zeros_like(start)
updates = Signum(beta=0.8).build([Trained(parameter, "input", 0.1)], lr=0.01)
for step in range(4):
    gradient = torch.randn(3, 4, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    parameter.grad = gradient.clone()
    updates.step()
    for i in range(3):
        for j in range(4):
            momentum[i, j] = 0.8 * momentum[i, j] + 0.2 * gradient[i, j]
            expected[i, j] = expected[i, j] * (1 - 0.01 * 0.1) - 0.01 * (1 if momentum[i, j] > 0 else -1)

edits = ("--set", "train.optimizer=signum", "--set", "train.lr=1e-2", "--set", "seeds=[0]")
(losses,) = [[arm["loss"] for arm in run(*edits)]]
print(json.dumps({"refused": refused, "losses": losses, "off": float((parameter - expected).abs().max())}))
"""


@pytest.mark.slow
def test_a_dropped_file_trains_a_study(tmp_path: Path) -> None:
    toy_study(tmp_path, "{wide: {d_model: 24}}", steps=60)
    said = followed("adding_an_optimizer.md", tmp_path, PROGRAM)
    assert "train.optimizer.betta: unknown key (did you mean 'beta'?)" in said["refused"]
    assert said["off"] < 1e-12
    assert len(said["losses"]) == 2
    assert max(said["losses"]) < 3.5  # a text of 27 kinds of bytes; untrained it is 5.5

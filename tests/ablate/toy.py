"""Whole studies in a second or so: from the file, through the plan and training in this process, to the summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import reports
from ablate.data import prepare
from ablate.machine.numerics import enforce
from ablate.planning.campaign import CampaignOutcome, Stage, campaign
from ablate.planning.make_plan import make_plan
from ablate.planning.plan import Plan
from ablate.planning.study_document import study_document
from ablate.running.request import Request
from ablate.running.worker import carry_out
from ablate.study.reading import load_study
from ablate.study.study import Study
from reports.judge.findings.study_summary import StudySummary
from store import Store

TOY = """
question: Does it matter?
base: {{preset: small, d_model: 16, n_layers: 1, block.mixer.heads: 2}}
arms: {arms}
data: {{source: files, paths: [text.txt], tokenizer: bytes, validation_tokens: 1024}}
train: {{context: 32, batch: 4, lr: 1e-2, validate_every: 1}}
budget: {{tokens: {tokens}}}
measure: null
evals: null
pilot: false
tune: {tune}
"""


def toy_study(folder: Path, arms: str, steps: int = 30, tune: str = "off") -> Path:
    """A study file of arms (YAML) that train for so many steps on 100 kB of made-up sentences."""
    words = np.random.default_rng(0).choice(["norm", "scale", "residual", "stream", "head", "the", "of"], 20_000)
    (folder / "text.txt").write_text("\n\n".join(" ".join(words[i : i + 50]) for i in range(0, len(words), 50)))
    path = folder / "toy.yaml"
    path.write_text(TOY.format(arms=arms, tokens=steps * 4 * 32, tune=tune))
    return path


def plan_toy(path: Path, seeds: Sequence[int]) -> Plan:
    """With the precision that this machine's products have."""
    return _plan(load_study(path, "cpu", [f"seeds={list(seeds)}"]))


def _plan(study: Study) -> Plan:
    return make_plan(study, matmul=enforce("cpu", study.train.dtype).matmul)


def run_toy(path: Path, store: Store, seeds: Sequence[int]) -> StudySummary:
    """Tune where the study says so, train what is missing with these seeds, and summarise."""
    study = load_study(path, "cpu", [f"seeds={list(seeds)}"])

    def loss(digest: str) -> float | None:
        result = store.read_result(digest)
        return None if result is None else math.inf if result.loss is None else result.loss

    stages = campaign(study, _plan, loss)
    stage = next(stages)
    try:
        while True:
            _train(stage, store)
            stage = stages.send(())
    except StopIteration as end:
        outcome: CampaignOutcome = end.value
    folder = store.study(study.name, study.scale)
    folder.write(study_document(outcome))
    return reports.summarise(folder.path)


def _train(stage: Stage, store: Store) -> None:
    for plan in stage.plans:
        for arm in plan.arms:
            prepare(arm.data, store.data_dir, plan.study.folder)
        for run in plan.runs:
            corpus = str(store.data(run.identity.data.digest).path)
            carry_out(Request(store=str(store.root), corpus=corpus, identity=run.identity))

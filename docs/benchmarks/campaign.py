"""Campaigns of proposals with known worth, with trained models: which share of the kept changes is worth nothing?

python docs/benchmarks/campaign.py STORE --share 0       # 200 proposals that change nothing
python docs/benchmarks/campaign.py STORE --share 0.1     # one in ten is worth 0.05 nats
python docs/benchmarks/campaign.py STORE --calibrate 12  # the worth of each, on twelve seeds

A worthless proposal changes `init.stream`: other initial values, as good as the first, so that it has noise of its own.
For the others, the base's logits are bounded by c·tanh(x/c), and a proposal takes the next larger c. Beside `ablate
judge`, the rule "keep whatever improves" reads the first seed of the same runs. Learning rates are as written. An
interrupted campaign continues.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ablate
from ablate.wings.campaign import campaign_log
from ablate.wings.campaign.campaign_log import ProposalRecord
from ablate.wings.campaign.proposals import kept, latest
from ablate.wings.promoting import CHANGE
from store import Store

CAPS = (
    2.0,
    2.037,
    2.075,
    2.113,
    2.154,
    2.194,
    2.236,
    2.279,
    2.323,
    2.368,
    2.413,
    2.46,
    2.509,
    2.565,
    2.621,
    2.676,
    2.735,
    2.799,
    2.865,
    2.936,
    3.014,
)
"""c of the base, and after each worthwhile proposal; steps are worth about 0.05 nats (`--calibrate`)."""
WORDS = ("norm", "scale", "residual", "stream", "head", "the", "of")
STUDY = """
question: Is nothing kept?
base: {{preset: small, d_model: 16, n_layers: 1, block.mixer.heads: 2, block.ffn.d_ff: 32, final_softcap: {cap}}}
arms: {arms}
data: {{source: files, paths: [text.txt], tokenizer: bytes, validation_tokens: 2048}}
train: {{context: 32, batch: 8, lr: 6e-2, warmup: 0.1, validate_every: 1}}
budget: {{tokens: 15360}}
tune: off
measure: null
evals: null
pilot: false
"""
OPTIONS: dict[str, Any] = {"scale": "cpu", "engine": "inprocess", "progress": False}


def study(folder: Path, arms: dict[str, dict[str, float]]) -> Path:
    """A study file beside 300 kB of made-up sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    words = np.random.default_rng(0).choice([*WORDS], 60_000)
    (folder / "text.txt").write_text("\n\n".join(" ".join(words[i : i + 50]) for i in range(0, len(words), 50)))
    path = folder / "toy.yaml"
    path.write_text(STUDY.format(cap=CAPS[0], arms=json.dumps(arms)))
    return path


def campaign(folder: Path, proposals: int, share: float, budget: float) -> None:
    """Make the proposals in a seeded order, and print the results after each."""
    path = study(folder, {"wider": {"block.ffn.d_ff": 48}})
    good = set(np.random.default_rng(0).choice(proposals, round(share * proposals), replace=False).tolist())
    name, store = f"nothing-{share:g}", folder / "runs"
    for number in range(len(_decided(store, name)), proposals):
        level = sum(map(_is_good, kept(_decided(store, name))))
        worth = number in good and level + 1 < len(CAPS)
        change = {"final_softcap": CAPS[level + 1]} if worth else {"init.stream": number + (1 if good else 1001)}
        said = ablate.judge(path, change=change, campaign=name, store=store, budget=budget, **OPTIONS)
        print(number + 1, said, flush=True)
    print(table(store, _decided(store, name)))


def _decided(store: Path, name: str) -> list[ProposalRecord]:
    return [record for record in latest(campaign_log.read(Store(store), name)) if record.outcome is not None]


def table(store: Path, records: Sequence[ProposalRecord]) -> str:
    """Markdown rows: kept proposals of each kind, by `ablate judge` and by one seed's improvement."""
    lines = [
        "| rule | good ones kept | kept that are nothing | share of what is kept that is nothing |",
        "|---|---|---|---|",
    ]
    improving = [record for record in records if _improves(store, record)]
    for rule, keeps in (("`ablate judge`", kept(records)), ("keep whatever improves, one seed", improving)):
        true, goods = sum(map(_is_good, keeps)), sum(map(_is_good, records))
        false, nothings = len(keeps) - true, len(records) - goods
        part = f"{false / len(keeps):.0%}" if keeps else "–"
        lines.append(f"| {rule} | {true} of {goods} | {false} of {nothings} | {part} |")
    return "\n".join(lines)


def _is_good(record: ProposalRecord) -> bool:
    return "final_softcap" in record.edits


def _improves(store: Path, record: ProposalRecord) -> bool:
    """Whether the first seed's loss fell. A diverged run is no improvement."""
    assert record.outcome is not None
    document = Store(store).study(record.outcome.test.study, record.scale).read()
    assert document is not None
    first = {arm.name: Store(store).read_result(arm.runs[0].digest) for arm in document.arms}
    losses = {name: math.inf if each is None or each.loss is None else each.loss for name, each in first.items()}
    return losses[CHANGE] < losses[document.baseline]


def calibrate(folder: Path, seeds: int, caps: Sequence[float]) -> None:
    """Print the mean loss at every c and the worth of each step: paired differences with their standard errors."""
    arms = {f"c{number}": {"final_softcap": cap, "init.stream": 9999} for number, cap in enumerate(caps)}
    found = ablate.run(study(folder, arms), sets={"seeds": seeds}, store=folder / "runs", **OPTIONS)
    assert found.summary is not None
    losses = found.summary.runs.pivot("arm", index="seed", values="loss").drop_nulls()
    for number, cap in enumerate(caps):
        own = losses[f"c{number}"]
        step = own - losses[f"c{max(number - 1, 0)}"]
        error = step.std() / len(step) ** 0.5
        print(f"{cap:6.3f} {own.mean():7.3f} {step.mean():+8.4f} ± {error:.4f} (seeds scatter by {own.std():.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--share", type=float, default=0.1, help="of proposals that are worth something")
    parser.add_argument("--proposals", type=int, default=200)
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for a proposal's runs")
    parser.add_argument("--calibrate", type=int, metavar="SEEDS", help="measure what a step is worth instead")
    parser.add_argument("--caps", type=float, nargs="+", default=CAPS)
    options = parser.parse_args()
    if options.calibrate:
        calibrate(options.store / "calibration", options.calibrate, options.caps)
    else:
        campaign(options.store, options.proposals, options.share, options.budget)


if __name__ == "__main__":
    main()

"""CPU seconds of commands on a store of many runs: python docs/benchmarks/store_scale.py --runs 10000

The runs are those of a study of ten arms. Their documents are written as training writes them, with made-up numbers.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import ablate
from ablate.store import Store
from ablate.store.documents import ItemLoss, MetricsRecord
from tests.ablate.toy import toy_study
from tests.documents import result_of

ARMS = 10
STEPS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="make the store there, and keep it")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = asked.keep or Path(name)
        study, store = made(folder, asked.runs)
        for words in (("plan", study, "--store", store), ("run", study, "--store", store), ("report", store)):
            seconds, mebibytes = cost([sys.executable, "-m", "ablate", *map(str, words)])
            print(f"{words[0]:8} {seconds:6.1f} s  {mebibytes:6.0f} MiB", flush=True)


def made(folder: Path, runs: int) -> tuple[Path, Path]:
    """A study, and a store in which all of it is done."""
    folder.mkdir(parents=True, exist_ok=True)
    arms = "{" + ", ".join(f"w{n}: {{block.ffn.d_ff: {48 + 8 * n}}}" for n in range(ARMS - 1)) + "}"
    study = toy_study(folder, arms, steps=STEPS)
    study.write_text(f"{study.read_text()}seeds: {runs // ARMS}\n")
    ablate.prepare(study, store=folder / "runs", progress=False)
    store, chance = Store(folder / "runs"), random.Random(0)
    os.fsync = lambda _: None  # these documents need not outlive a fall of the machine
    for arm in ablate.plan(study, store=store.root).outcome.plan.arms:
        for run in arm.runs:
            write(store, run.identity, chance)
    return study, store.root


def write(store: Store, identity: ablate.store.documents.RunDocument, chance: random.Random) -> None:
    loss = chance.gauss(2.5, 0.02)
    store.write_run(identity)
    records = (
        MetricsRecord(step=step, tokens=step * 128, seconds=0.1 * step, lr=1e-2, loss=loss, tokens_per_second=1e4)
        for step in range(1, STEPS + 1)
    )
    store.append_metrics(identity.digest, *records)
    items = [ItemLoss(item=item, nats=loss * 32, targets=32, bytes=32) for item in range(8)]
    store.write_result(result_of(identity.digest, loss=loss, bits_per_byte=loss, steps=STEPS, tokens=3840), items)


def cost(command: list[str]) -> tuple[float, float]:
    """Processor seconds and the peak of memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, after.ru_maxrss / 1024


if __name__ == "__main__":
    main()

"""CPU seconds of commands on a store of many runs: python docs/benchmarks/store_scale.py --runs 10000

The runs are those of a study of ten arms. Their documents are written as training writes them, with made-up numbers.
With --archives 10 1000 4000, stores of these sizes are packed, merged into an empty store and checked there, one after
the other, and the exponents are printed with which the time grows beyond that of the smallest.
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import random
import re
import resource
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from urllib.request import urlopen

import ablate
from store import Store, checksum
from store.documents import ItemLoss, MetricsRecord, RunDocument
from store.documents.data import SumsDocument
from store.seals import Chain
from tests.ablate.toy import toy_study
from tests.documents import result_of

ROOT = Path(__file__).parents[2]
ARMS = 10
STEPS = 30
ADDRESSES = {"serve, list": "", "serve, page": "studies/toy-cpu/report.html"}
SUMS = re.compile(r'"sums": \{[^}]*\}')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="make the store there, unless it is there, and keep it")
    parser.add_argument("--only", nargs="*", help="commands to measure")
    parser.add_argument("--archives", nargs="+", type=int, metavar="RUNS", help="measure archives of these sizes")
    asked = parser.parse_args()
    for package in ("ablate", "evals", "reports", "store", "zoo"):  # as in an installed package
        compileall.compile_dir(ROOT / package, quiet=1)
    if asked.archives:
        measure_archives(sorted(asked.archives))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        study, store = made(folder, asked.runs)
        commands = {
            "plan": ("plan", study, "--store", store),
            "run": ("run", study, "--store", store),
            "report": ("report", store),
            "check": ("check", store),
            "check --quick": ("check", store, "--quick"),
            "serve, list": ("serve", store, "--port", 0),
            "serve, page": ("serve", store, "--port", 0),
        }
        for name in commands if asked.only is None else asked.only:
            seconds, mebibytes = cost([sys.executable, "-m", "ablate", *map(str, commands[name])], ADDRESSES.get(name))
            print(f"{name:14} {seconds:6.1f} s  {mebibytes:6.0f} MiB", flush=True)


def measure_archives(sizes: list[int]) -> None:
    """Print the time of each command at each size, and its exponents between sizes above the smallest."""
    found: dict[str, list[float]] = {}
    for runs in sizes:
        with tempfile.TemporaryDirectory() as temporary:
            study, store = made(Path(temporary), runs)
            archive, merged = Path(temporary, "all.zip"), Path(temporary, "merged")
            cost(
                [sys.executable, "-m", "ablate", "run", str(study), "--store", str(store)], None
            )  # writes its document
            commands = {
                "pack": ("pack", study, "--out", archive, "--store", store),
                "merge": ("merge", archive, "--store", merged),
                "check": ("check", merged),
            }
            for name, words in commands.items():
                seconds, mebibytes = cost([sys.executable, "-m", "ablate", *map(str, words)], None)
                found.setdefault(name, []).append(seconds)
                print(f"{name:6} {runs:6} runs  {seconds:6.1f} s  {mebibytes:6.0f} MiB", flush=True)
    for name, seconds in found.items():
        beyond = [(runs - sizes[0], took - seconds[0]) for runs, took in zip(sizes, seconds, strict=True)][1:]
        for (few, little), (many, much) in pairwise(beyond):
            exponent = math.log(much / little) / math.log(many / few)
            print(f"{name:6} exponent {exponent:.2f} from {few + sizes[0]} to {many + sizes[0]} runs")


def made(folder: Path, runs: int) -> tuple[Path, Path]:
    """A study, and a store in which all its runs are done."""
    folder.mkdir(parents=True, exist_ok=True)
    arms = "{" + ", ".join(f"w{n}: {{block.ffn.d_ff: {48 + 8 * n}}}" for n in range(ARMS - 1)) + "}"
    study = toy_study(folder, arms, steps=STEPS)
    study.write_text(f"{study.read_text()}seeds: {runs // ARMS}\n")
    store, chance = Store(folder / "runs"), random.Random(0)
    if store.root.exists():
        return study, store.root
    ablate.prepare(study, store=store.root, progress=False)
    for arm in ablate.plan(study, store=store.root).outcome.plan.arms:
        template = Template(arm.runs[0].identity)
        for run in arm.runs:
            template.write(store, run.identity, chance.gauss(2.5, 0.02))
    return study, store.root


class Template:
    """Texts of a run's documents with placeholder numbers, which each run replaces by its own. They are built by their
    models, sealed and hashed as the store does, but neither flushed nor renamed, which takes a tenth of the time."""

    LOSS, SEED, DIGEST = 2.123456789, 987654321, "the digest"

    def __init__(self, identity: RunDocument) -> None:
        run = identity.model_copy(update={"digest": self.DIGEST, "seed": self.SEED})
        result = result_of(
            self.DIGEST, loss=self.LOSS, judging_loss=self.LOSS, bits_per_byte=self.LOSS, steps=STEPS, tokens=3840
        )
        self.run, self.result = (
            json.dumps(each.model_dump(by_alias=True), indent=1, ensure_ascii=False) + "\n" for each in (run, result)
        )
        self.metrics = [
            MetricsRecord(
                step=step, tokens=step * 128, seconds=0.1 * step, lr=1e-2, loss=self.LOSS, tokens_per_second=1e4
            ).model_dump_json(exclude_unset=True)
            for step in range(1, STEPS + 1)
        ]
        items = [ItemLoss(item=item, nats=self.LOSS, targets=1, bytes=1) for item in range(8)]
        self.losses = "".join(json.dumps(item.model_dump()) + "\n" for item in items)

    def write(self, store: Store, identity: RunDocument, loss: float) -> None:
        digest, folder = identity.digest, store.run_dir(identity.digest)
        numbers = {self.DIGEST: digest, str(self.SEED): str(identity.seed), str(self.LOSS): f"{loss:.9f}"}

        def of_this_run(text: str) -> str:
            for old, new in numbers.items():
                text = text.replace(old, new)
            return text

        chain = Chain(digest)
        logs = {
            "metrics": b"".join(chain.sealed(of_this_run(line).encode()) for line in self.metrics),
            "losses": of_this_run(self.losses).encode(),
        }
        hashes = {name: checksum.of(content) for name, content in logs.items()}
        sums = f'"sums": {json.dumps({"metrics": hashes["metrics"], "probes": None, "losses": hashes["losses"]})}'
        documents = {"run.json": self.run, "result.json": SUMS.sub(sums, self.result)}
        weights = SumsDocument(sha256={"weights.safetensors": checksum.of(b"weights")}).model_dump(by_alias=True)
        documents["model/sums.json"] = json.dumps(weights, indent=1) + "\n"
        (folder / "model").mkdir(parents=True)
        (folder / "model/weights.safetensors").write_bytes(b"weights")
        for name, content in logs.items():
            (folder / f"{name}.ndjson").write_bytes(content)
        for name, text in documents.items():
            (folder / name).write_text(checksum.sealed_json(of_this_run(text), f"{digest}/{name}"))


def cost(command: list[str], page: str | None) -> tuple[float, float]:
    """Processor seconds and peak memory (MiB) of a command. page: the address to request, if the command is a
    server."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if page is None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    else:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            with urlopen(server.stdout.readline().split()[0] + page) as answer:
                answer.read()
            server.terminate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, after.ru_maxrss / 1024


if __name__ == "__main__":
    main()

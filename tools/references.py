"""Add the losses of simple models to recorded results that lack them.

python tools/references.py studies/results/*.json --store STORE

The study that a result's command names is planned again, without training, for the text and the tokens of its runs. A
result whose study has another size or length by now is refused.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
from pathlib import Path

import ablate
from ablate.data import Corpus, open_corpus
from ablate.data.references import references
from ablate.running.corpora import prepare_corpora, prepare_references
from ablate.wings.results import recorded
from ablate.wings.results.document import RecordedResult
from ablate.wings.science import result_files
from ablate.wings.science.recording import with_references
from reports.judge.reading.documents import TextReferences
from store import Store


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", metavar="FILE", nargs="+", type=Path, help="recorded results")
    parser.add_argument("--store", type=Path, default=Path("runs"), help="where texts are prepared (default: runs)")
    options = parser.parse_args()
    for path in options.results:
        result = recorded.read(path)
        known = _references(result, Store(options.store))
        result_files.write(with_references(result, known), path.parent)
        base = known.get(result.baseline)
        print(f"{result.name}: {base.read if base else 'no text'}")


def _references(result: RecordedResult, store: Store) -> dict[str, TextReferences]:
    words = shlex.split(result.command)
    sets = [word for before, word in itertools.pairwise(words) if before == "--set"]
    plan = ablate.plan(words[2], scale=result.scale, sets=sets, store=store.root).outcome.plan
    arms = {arm.name: arm for arm in plan.arms}
    if arms.keys() != {arm.name for arm in result.arms} and result.baseline not in arms:
        sys.exit(f"{result.name}: its study has other arms by now")
    lengths = [arm.length.tokens_per_parameter for arm in plan.arms if result.arm(arm.name)]
    recorded = result.setting.tokens_per_parameter
    if any(abs(now / then - 1) > 1e-3 for now, then in zip((min(lengths), max(lengths)), recorded, strict=True)):
        sys.exit(f"{result.name}: its study has {min(lengths)} to {max(lengths)} tokens per parameter by now")
    prepare_corpora(plan.study, store, lambda stage, share: None)
    prepare_references(plan, store)
    found = {}
    for arm in plan.arms:
        corpus = open_corpus(store.data(arm.identity.digest).path)
        if isinstance(corpus, Corpus):
            read, whole = (references(corpus, arm.train.context, n) for n in (round(arm.length.tokens), None))
            found[arm.name] = TextReferences(read, whole)
    return found


if __name__ == "__main__":
    main()

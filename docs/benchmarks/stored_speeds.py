"""Speed, memory and sensors of each run of a store: `python docs/benchmarks/stored_speeds.py STORE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from store import Store


def main(folder: str) -> None:
    store = Store(folder)
    studies = [json.loads(path.read_text()) for path in Path(folder).glob("studies/*/study.json")]
    arms = [arm for study in studies for arm in study["arms"]]
    runs = [(f"{arm['name']}, seed {run['seed']}", run["digest"]) for arm in arms for run in arm["runs"]]
    for name, digest in runs:
        found = store.read_result(digest)
        if found is None:
            print(f"{name}: {store.read_error(digest) or 'no result'}")
            continue
        own, published = (_percent(share) for share in (found.mfu, found.mfu_published))
        reserved = found.peak_memory_reserved_bytes
        print(
            f"{name}: {found.training_speed or 0:,.0f} tokens/s, {own} of measured and {published} of published"
            f" FLOP/s, {found.peak_memory_bytes / 2**30:.2f} GiB"
            f"{f' of {reserved / 2**30:.2f} reserved' if reserved else ''}, attention by {found.attention},"
            f" {found.gpu or 'no sensors'}"
        )
        for path in store.run_dir(digest).glob("measure-*.json"):
            measure = store.read_measure(digest, path.stem.removeprefix("measure-"))
            for point in measure.decode if measure else ():
                said = f"{point.tokens_per_second.median:,.0f} tokens/s" if point.tokens_per_second else point.reason
                print(f"  decoding at {point.context} × {point.batch}: {said}")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


if __name__ == "__main__":
    main(sys.argv[1])

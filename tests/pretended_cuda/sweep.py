"""All that is tried on a pretended CUDA device, or one in so many: `sweep.py GUARD ONE_IN`.

Prints {what is tried: `outcome`} as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from tests.pretended_cuda.pretence import outcome, pretend  # isort: skip (it comes before torch)

from tests.pretended_cuda.choices import draw_one, step
from tests.pretended_cuda.training import RUNS, imagine, train
from zoo.conformance.matrix import axes, combine


def main(one_in: int) -> None:
    pretend()
    imagine()
    print(json.dumps({name: outcome(of) for name, of in islice(tried(), 0, None, one_in)}))


def tried() -> Iterator[tuple[str, Callable[[], None]]]:
    for name, run in RUNS.items():
        yield name, partial(train, **run)
    yield "a token is drawn", draw_one
    for options in axes().values():
        for option in options:
            yield str(option), lambda option=option: step(combine([option]))


if __name__ == "__main__":
    main(*map(int, sys.argv[2:]))

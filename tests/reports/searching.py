"""A search with two trials, written as `ablate search` would write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ablate.store import Store

RATE = {"name": "FloatDistribution", "attributes": {"low": 1e-3, "high": 1e-1, "step": None, "log": True}}


def write_search(root: Path, name: str) -> Path:
    """Its folder."""
    store = Store(root)
    folder = store.search_dir(name, "cpu")
    document = {
        "schema": 1,
        "name": name,
        "scale": "cpu",
        "question": "Which learning rate?",
        "source": "question: Which learning rate?\n",
        "created": "2026-01-02T00:00:00+00:00",
        "space": {"train.lr": {"log": [1e-3, 1e-1]}},
        "objectives": {"loss": "minimize"},
        "sampler": "random",
        "pruner": None,
        "shares": [1.0],
        "seeds": [1000],
        "constraints": [],
        "base": {"name": "base", "runs": [], "values": None},
        "illegal": {},
        "trials": [_trial(0, 1e-2, 2.4), _trial(1, 3e-2, 2.5)],
    }
    store.write_json(folder / "search.json", document)
    return folder


def _trial(number: int, rate: float, loss: float) -> dict[str, Any]:
    settings = {"train.lr": rate}
    return {
        "number": number,
        "state": "finished",
        "best": number == 0,
        "settings": settings,
        "params": settings,
        "distributions": {"train.lr": RATE},
        "values": [loss],
        "curve": {},
    }

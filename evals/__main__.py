"""`python -m evals`: the command line of the evaluation that has one, in the `__main__` of its folder."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    found = [path.parent.name for path in Path(__file__).parent.glob("*/__main__.py")]
    sys.exit(import_module(f"evals.{found[0]}.__main__").main(sys.argv[1:]) if found else "evals: nothing to run here")

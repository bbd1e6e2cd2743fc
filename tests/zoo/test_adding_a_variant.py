"""The example of docs/adding_a_variant.md, dropped into its folder: one file, and the zoo has it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
CONFORMING = 2
"""Rows of the conformance suite with the variant that are run here."""

PROGRAM = f"""
import contextlib, io, json, sys
from pathlib import Path
import zoo.norms
zoo.norms.__path__.append(sys.argv[1])

from ablate.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out:
    main(["zoo", "--json"])
listed = [entry for entry in json.loads(out.getvalue())["variants"]["norms"] if entry["name"] == "maxnorm"]

import zoo
try:
    zoo.load("small", **{{"block.norm": {{"kind": "maxnorm", "epz": 1.0}}}})
except zoo.SpecError as error:
    refused = str(error)

spec = zoo.load("small", **{{"block.norm": "maxnorm"}})
built = type(zoo.build(spec).norm).__name__

from zoo.conformance.combinations import covering_kind
from zoo.conformance.checking import conforms
from zoo.conformance.matrix import axes, combine
(option,) = (option for option in axes()["norm"] if option.name == "maxnorm")
rows = covering_kind([option])
for row in rows[:{CONFORMING}]:
    conforms(combine(row.values()))
met = {{str(option) for row in rows for option in row.values()}}
every = {{str(option) for axis, options in axes().items() if axis not in ("norm", "norm.unit_offset")
         for option in options}}
print(json.dumps({{"listed": listed, "refused": refused, "built": built, "rows": len(rows),
                  "unmet": sorted(every - met)}}))
"""


@pytest.fixture(scope="module")
def example() -> str:
    """The file that the guide tells its reader to write."""
    text = (ROOT / "docs" / "adding_a_variant.md").read_text(encoding="utf-8")
    found = re.search(r"Write `zoo/norms/maxnorm.py`:\n\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_a_dropped_file_is_listed_validated_built_and_conformance_tested(example: str, tmp_path: Path) -> None:
    (tmp_path / "maxnorm.py").write_text(example, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    (listed,) = said["listed"]
    assert listed.items() >= {"name": "maxnorm", "doc": "y = x / max(max_i |x_i|, ε) · g.", "paper": None}.items()
    assert listed["settings"]["eps"]["default"] == 1e-6
    assert said["refused"] == "block.norm.epz: unknown key (did you mean 'eps'?)"
    assert said["built"] == "MaxNormLayer"
    assert said["rows"] >= CONFORMING
    assert said["unmet"] == []

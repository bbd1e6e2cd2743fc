"""Where a planned study will probably stand, from the results that ship."""

from __future__ import annotations

from pathlib import Path

import ablate
from ablate.study.written import RESULTS
from ablate.wings.results.recorded import read


def test_a_plan_foretells_from_recorded_results(tmp_path: Path) -> None:
    """As long as the shipped demo ends below the bigrams, or above them."""
    plan = ablate.plan("norm_placement", scale="cpu", store=tmp_path, device="cpu", progress=False)
    found = plan.prospects.standing
    known = read(RESULTS / "norm_placement@cpu.json")
    assert found is not None and known.references is not None
    assert found.source == f"pre of {known.name}"
    assert (found.tokens, found.standing) == (known.references.tokens, known.standing)
    assert (found.line is None) == (known.standing != "worse than bigrams")

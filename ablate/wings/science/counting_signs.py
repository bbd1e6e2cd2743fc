"""Sentences to read beside the answer of a recorded result, and counts of kept signs, of many arms at several sizes.

    python -m ablate.wings.science.counting_signs studies/results/small_predicts_large@cpu.json \
        > ablate/wings/results/kept_signs.json
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from itertools import combinations
from pathlib import Path

import numpy as np

from ablate.wings.results import kept_signs, recorded
from ablate.wings.results.document import RecordedArm, RecordedEffect, RecordedResult
from ablate.wings.results.kept_signs import GROUPS, Conditions, Group, Growth, KeptSign, KeptSigns, kept_sign
from ablate.wings.science import result_files
from reports.judge.statistics.estimates import Floats


def counted(result: RecordedResult) -> KeptSigns:
    """The counts of a recorded result with a ladder of sizes, over the arms that trained at each."""
    last = {arm.name: arm.difference.mean for arm in result.arms if arm.difference} | {result.baseline: 0.0}
    growths = []
    for rung in result.rungs:
        here = {name: found.mean for name, found in rung.differences.items()} | {result.baseline: 0.0}
        if rung.axis == "size":
            pairs = combinations(sorted(here.keys() & last.keys()), 2)
            both = sorted(((here[a] - here[b], last[a] - last[b]) for a, b in pairs), key=lambda pair: abs(pair[0]))
            groups = tuple(_group(part) for part in np.array_split(np.array(both), GROUPS))
            growths.append(Growth(parameters=rung.parameters[1], groups=groups))
    setting, read = result.setting, [rung.tokens_per_parameter for rung in result.rungs]
    return KeptSigns(
        study=result.name,
        arms=len(last),
        parameters=setting.parameters[1],
        data=setting.data,
        vocabularies=setting.vocabularies,
        unit=result.unit,
        tokens_per_parameter=min(tokens for tokens, _ in (setting.tokens_per_parameter, *read)),
        growths=tuple(growths),
    )


def _group(pairs: Floats) -> Group:
    kept = int((pairs[:, 0] * pairs[:, 1] > 0).sum())
    return Group(least=result_files.rounded(abs(float(pairs[0, 0]))), pairs=len(pairs), kept=kept)


def of_result(result: RecordedResult) -> dict[str, KeptSign]:
    """Counts for each settled difference of a recorded result, by its arm or effect."""
    setting = result.setting
    at = Conditions(setting.parameters, setting.data, setting.vocabularies, result.unit)
    rows: tuple[RecordedArm | RecordedEffect, ...] = (*result.arms, *result.effects)
    found = {row.name: kept_sign(row.verdict, row.difference.mean if row.difference else None, at) for row in rows}
    return {name: kept for name, kept in found.items() if kept}


def caveats(result: RecordedResult, names: Collection[str] = ()) -> list[str]:
    """Caveats of the result. names: if given, without those of other arms."""
    return [str(each) for each in result.caveats if not names or each.arm is None or each.arm in names]


def signs(result: RecordedResult, names: Collection[str] = ()) -> str:
    """Sentence on how often settled differences like the result's kept their sign in larger models. names: if given,
    only of these arms."""
    found = of_result(result)
    return kept_signs.sentence({name: kept for name, kept in found.items() if not names or name in names})


def beside(result: RecordedResult) -> Iterator[str]:
    """Caveats, kept signs with their limits, qualifiers and notes."""
    kept = of_result(result)
    yield from caveats(result)
    yield from filter(None, [f"{kept_signs.sentence(kept)} {kept_signs.limits(kept.values())}".strip()])
    yield from (*result.qualifiers, *result.notes)


if __name__ == "__main__":
    print(counted(recorded.read(Path(sys.argv[1]))).model_dump_json(indent=1))

"""Generated tables of recorded results in a handwritten Markdown page, between markers:

<!-- results -->                        every recorded result: study, answer, size
<!-- results rope_base@cpu mqar@cpu --> the same for these results
<!-- results norm_placement@cpu -->     every arm of one result
<!-- end of results -->
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from ablate.wings.results import kept_signs
from ablate.wings.results.document import RecordedArm, RecordedResult
from ablate.wings.results.recorded import size_of
from ablate.wings.science.cards import conditions_of
from ablate.wings.science.counting_signs import caveats, of_result
from ablate.wings.science.forest import said
from reports.page.wording.reference_words import pair_note
from reports.page.wording.table import NONE
from reports.page.wording.words import decimals
from store.errors import ReportError
from store.files import check_regular

END = "<!-- end of results -->"
TABLE = re.compile(rf"(?P<start><!-- results(?P<names>(?: \S+)*) -->\n).*?(?P<end>{END})", re.DOTALL)


def tables_file(results: Sequence[RecordedResult], studies: Mapping[str, Path], page: Path) -> dict[Path, str]:
    """The page with its tables updated, by path. studies: files by name, for links.

    Raises ReportError without markers, and for a name without a recorded result.
    """
    links = {name: os.path.relpath(path.resolve(), page.resolve().parent) for name, path in studies.items()}
    check_regular(page)
    try:
        return {page: with_tables(page.read_text(encoding="utf-8"), results, links)}
    except (ReportError, UnicodeDecodeError) as error:
        raise ReportError(f"{page}: {error}") from error


def with_tables(text: str, results: Sequence[RecordedResult], links: Mapping[str, str]) -> str:
    """The text with its tables regenerated from the results. links: paths of studies by name.

    Raises ReportError without markers, and for a name without a recorded result.
    """
    known = {result.name: result for result in results}

    def table(found: re.Match[str]) -> str:
        names = found["names"].split()
        for name in names:
            if name not in known:
                raise ReportError(f"no recorded result {name}; recorded: {', '.join(known) or 'none'}")
        lines = _arms(known[names[0]]) if len(names) == 1 else _answers(results, links, names or list(known))
        return "\n".join((found["start"], *lines, "", found["end"]))

    if not TABLE.search(text):
        raise ReportError(f"no place for the table: mark it with `<!-- results -->` and `{END}`")
    return TABLE.sub(table, text)


def _answers(results: Sequence[RecordedResult], links: Mapping[str, str], names: Collection[str]) -> Iterator[str]:
    yield "| study | answer | at |"
    yield "|---|---|---|"
    for result in results:
        if result.name not in names:
            continue
        answer = " ".join(_said(result, result.answer)).replace("|", "&#124;") or NONE
        study = f"[`{result.study}`]({links[result.study]})" if result.study in links else f"`{result.study}`"
        yield f"| {study} | {answer} | `{result.scale}`: {size_of(result)} |"
    kept = [each for result in results if result.name in names for each in of_result(result).values()]
    if kept:
        yield f"\n{kept_signs.KEY} {kept_signs.limits(kept)}"
    more, absent = len(results) - len(names), len(set(links) - {result.study for result in results})
    told = [f"{more} more {'is' if more == 1 else 'are'} recorded"] if more else []
    told += [f"{absent} of the {len(links)} studies that ship have no recorded result yet"] if absent else []
    if told:
        yield ""
        yield f"{'; '.join(told)}."


def _arms(result: RecordedResult) -> Iterator[str]:
    """Every arm relative to the baseline, the answer, and its conditions."""
    yield f"| arm | loss ({result.unit}) ± 95 % | difference (95 %) | verdict |"
    yield "|---|--:|--:|---|"
    for arm in result.arms:
        failed = len(arm.stalled) + len(arm.diverged)
        seeds = f": {failed} of {len(arm.seeds) + failed} seeds did not train" if failed else ""
        note = pair_note((arm.name, result.baseline), result.losses, result.references_by_arm)
        verdict = f"{arm.verdict}{seeds}{f' ({note})' if note and arm.difference else ''}"
        compute = f", ×{said(arm.effective_compute, True).replace('×', '')} compute" if arm.effective_compute else ""
        yield f"| `{arm.name}` | {_loss(arm)} | {said(arm.difference) or NONE}{compute} | {verdict} |"
    yield ""
    yield " ".join(_said(result, f"**{result.answer}**"))
    yield ""
    yield f"`{result.scale}`: {conditions_of(result)} · {result.recorded}"


def _said(result: RecordedResult, answer: str) -> Iterator[str]:
    """The answer, how often such differences kept their sign, and caveats."""
    yield from filter(None, (answer, kept_signs.short(of_result(result)), *caveats(result)))


def _loss(arm: RecordedArm) -> str:
    """`4.466 ± 0.013`."""
    if arm.loss is None:
        return NONE
    mean = fmean(arm.seeds.values())  # unrounded, unlike the recorded mean
    if arm.loss.low is None or arm.loss.high is None:
        return f"{mean:.3f}"
    half = (arm.loss.high - arm.loss.low) / 2
    return f"{mean:.{decimals(half)}f} ± {half:.{decimals(half)}f}"

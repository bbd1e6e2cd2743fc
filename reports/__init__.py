"""Analysis of a study: collect → summarise → draw. Reads only the store and never loads torch.

Importing this package is cheap; the libraries load with the first call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ablate.store import Store
    from ablate.store.documents import JsonObject
    from reports.atlas.sources import Sources
    from reports.findings.next_steps import NextStep
    from reports.findings.replication import ReplicatedRow
    from reports.findings.shapes import ArmSummary, StudySummary
    from reports.results.document import RecordedResult

__all__ = [
    "atlas_files",
    "changes",
    "claims",
    "contrasts",
    "detectable",
    "documents",
    "export_study",
    "figures_of",
    "findings_files",
    "headline",
    "next_steps",
    "notebook_cell",
    "notes",
    "open_arms",
    "rates",
    "read_result",
    "record_look",
    "record_result",
    "render",
    "render_campaign",
    "render_search",
    "render_site",
    "replicated",
    "results_of_store",
    "search_answer",
    "search_table",
    "sentence",
    "size_of",
    "step_words",
    "summarise",
    "table",
    "tables_file",
    "unmeasured",
    "withheld",
]


def summarise(study_dir: Path | str, store: Store | None = None) -> StudySummary:
    """Intervals, paired differences and verdicts of the study in a store's folder. A `store` that has read its results
    does not read them again.

    Raises `reports.errors.ReportError` where runs must not be compared.
    """
    from reports.findings.summary import summarise_study  # noqa: PLC0415 (keeps the import cheap)

    return summarise_study(study_dir, store)


def record_look(study_dir: Path | str) -> None:
    """Add to the ledger that the losses of a study were seen, as far as there are any: its seeds may not be chosen by
    them. `render` does so too."""
    from reports.pages.page import record_look as record  # noqa: PLC0415 (keeps the import cheap)

    record(study_dir)


def record_result(study_dir: Path | str, folder: Path | None = None, notes: Sequence[str] = ()) -> Path:
    """Write a study's result as a small file, beside the study unless a folder is given, and return its path.

    Raises `reports.errors.ReportError` where there is no result.
    """
    from reports.results.storing import record_result as record  # noqa: PLC0415 (keeps the import cheap)

    return record(Path(study_dir), folder, notes)


def read_result(path: Path) -> RecordedResult:
    """A recorded result. Raises `reports.errors.ReportError` where the file is none."""
    from reports.results.files import read  # noqa: PLC0415 (keeps the import cheap)

    return read(path)


def size_of(result: RecordedResult) -> str:
    """`56 k parameters, 5 seeds`."""
    from reports.results.sizes import size_of as size  # noqa: PLC0415 (keeps the import cheap)

    return size(result)


def results_of_store(root: Path) -> Iterator[tuple[RecordedResult, Path | None]]:
    """The result of every study of a store that has one, with its report where there is one."""
    from reports.results.storing import results_of_store as results  # noqa: PLC0415 (keeps the import cheap)

    return results(root)


def render_campaign(store: Store, name: str) -> Path:
    """Draw the page of a campaign of proposals beside its file, and return its path."""
    from reports.pages.campaign import render_campaign as render_page  # noqa: PLC0415 (keeps the import cheap)

    return render_page(store, name)


def atlas_files(
    results: Sequence[RecordedResult], sources: Sources, out: Path, pages: Mapping[str, Path]
) -> dict[Path, str]:
    """Pages of the atlas in a folder, by their paths. pages: reports by the name of their result."""
    from reports.atlas.site import atlas_pages, report_paths  # noqa: PLC0415 (keeps the import cheap)

    found = atlas_pages(results, sources, report_paths(out, pages))
    return {out / path: text for path, text in found.items()}


def findings_files(results: Sequence[RecordedResult], sources: Sources, path: Path) -> dict[Path, str]:
    """Summary of the atlas as Markdown, at most 1,500 words, and its picture, by their paths."""
    from reports.atlas.findings import findings_files as files  # noqa: PLC0415 (keeps the import cheap)

    return files(results, sources, path)


def tables_file(results: Sequence[RecordedResult], studies: Mapping[str, Path], page: Path) -> dict[Path, str]:
    """A Markdown page with its tables of results, between markers, brought up to date, by its path."""
    from reports.atlas.readme import tables_file as file  # noqa: PLC0415 (keeps the import cheap)

    return file(results, studies, page)


def render(study_dir: Path | str, summary: StudySummary | None = None) -> Path:
    """Write the study's report, one self-contained HTML file, and return its path. A `summary` is not made again."""
    from reports.pages.page import render_study  # noqa: PLC0415 (keeps the import cheap)

    return render_study(study_dir, summary)


def headline(summary: StudySummary) -> str:
    """The answer in one sentence of at most 25 words."""
    from reports.wording import answers  # noqa: PLC0415 (keeps the import cheap)

    return answers.headline(summary)


def contrasts(summary: StudySummary) -> list[str]:
    """One sentence for each comparison that the study declares between arms other than the baseline."""
    from reports.sections.contrasts import sentence  # noqa: PLC0415 (keeps the import cheap)

    return [sentence(each) for each in summary.contrasts]


def claims(summary: StudySummary) -> list[str]:
    """A line for each claim that the study states, with its outcome."""
    from reports.wording.claim_words import line  # noqa: PLC0415 (keeps the import cheap)

    return [line(each) for each in summary.claims]


def replicated(summary: StudySummary) -> tuple[ReplicatedRow, ...]:
    """The rows of the published table that the study replicates, each with its outcome."""
    from reports.findings.replication import replicated as found  # noqa: PLC0415 (keeps the import cheap)

    return found(summary)


def changes(summary: StudySummary) -> list[str]:
    """Whether each arm's difference changes with size and length, and that of how many nothing can be told."""
    from reports.wording.rung_words import sentences  # noqa: PLC0415 (keeps the import cheap)

    return list(sentences(summary.changes))


def rates(summary: StudySummary) -> str:
    """Sentence on how arms got their learning rates: `Rates as written, not tuned.`"""
    from reports.wording import rate_words  # noqa: PLC0415 (keeps the import cheap)

    return rate_words.line(summary.study)


def detectable(summary: StudySummary) -> str:
    """The smallest difference that the study could detect; nothing where that is not known."""
    from reports.wording import method_words  # noqa: PLC0415 (keeps the import cheap)

    return method_words.detectable(summary)


def documents(summary: StudySummary) -> JsonObject:
    """`arms`, `effects`, `claims` and `changes` as `ablate run --json` prints them."""
    from reports.findings.documents import documents as printed  # noqa: PLC0415 (keeps the import cheap)

    return printed(summary)


def unmeasured(summary: StudySummary) -> str:
    """Why speeds are not known, and what measures them; nothing where they are known or not asked for."""
    from reports.wording import cost_words  # noqa: PLC0415 (keeps the import cheap)

    return cost_words.unmeasured(summary)


def notes(summary: StudySummary) -> list[str]:
    """Lines that the table and the headline leave out; for a run without verdicts, only why it has no speeds."""
    from reports.reading.outcomes import UNJUDGED  # noqa: PLC0415 (keeps the import cheap)
    from reports.wording.answers import qualifiers  # noqa: PLC0415 (keeps the import cheap)
    from reports.wording.method_words import look  # noqa: PLC0415 (keeps the import cheap)
    from reports.wording.registration_words import line as registered  # noqa: PLC0415 (keeps the import cheap)
    from reports.wording.title_words import small_print  # noqa: PLC0415 (keeps the import cheap)

    found = []
    if summary.study.scale not in UNJUDGED:
        found = [
            small_print(summary),
            registered(summary),
            *qualifiers(summary),
            *contrasts(summary),
            *claims(summary),
            *withheld(summary),
            detectable(summary),
            look(summary),
        ]
    return list(filter(None, [*found, unmeasured(summary)]))


def next_steps(summary: StudySummary, options: str = "") -> tuple[NextStep, ...]:
    """The commands that follow from the verdicts, each with its time and its chance, and with these options."""
    from reports.findings.next_steps import next_steps as found  # noqa: PLC0415 (keeps the import cheap)

    return found(summary, options)


def step_words(step: NextStep, at_once: int = 1) -> str:
    """A step as a sentence that ends in its command; at_once: how many runs share the work."""
    from reports.findings.next_steps import step_words as words  # noqa: PLC0415 (keeps the import cheap)

    return words(step, at_once)


def withheld(summary: StudySummary) -> list[str]:
    """`post, double: no verdict: …`, a line for each reason."""
    found: dict[str, list[str]] = {}
    judged = [(arm.name, arm.withheld) for arm in summary.arms]
    for name, reason in [*judged, *((each.effect.name, each.judgement.withheld) for each in summary.effects)]:
        if reason is not None:
            found.setdefault(reason, []).append(name)
    every = sum(len(names) for names in found.values()) > 1
    whole = {reason for reason, names in found.items() if every and len(names) == len(summary.judgements)}
    return [
        f"No verdict: {reason}" if reason in whole else f"{', '.join(names)}: no verdict: {reason}"
        for reason, names in found.items()
    ]


def sentence(summary: StudySummary, arm: ArmSummary) -> str:
    """The sentence on one arm's result, with the numbers behind it."""
    from reports.wording import words  # noqa: PLC0415 (keeps the import cheap)

    return words.sentence(summary, arm)


def figures_of(summary: StudySummary) -> dict[str, go.Figure]:
    """Every figure of the study's page by its key, in the page's order."""
    import plotly.graph_objects as go  # noqa: PLC0415 (keeps the import cheap)

    from reports.sections import draw  # noqa: PLC0415 (keeps the import cheap)

    return {figure.key: go.Figure(figure.drawing.to_plotly_json()) for figure in draw(summary)}


def notebook_cell(summary: StudySummary) -> str:
    """The answer, the table of arms and the main figure as HTML that asks the network for nothing."""
    from reports.pages.cell import render_cell  # noqa: PLC0415 (keeps the import cheap)

    return render_cell(summary)


def render_site(store: Path | str) -> Path:
    """Write a store's `index.html` and the report of each of its studies, and return the index's path."""
    from reports.pages.site import render_site as render_all  # noqa: PLC0415 (keeps the import cheap)

    return render_all(store)


def export_study(study_dir: Path | str, target: Path | str) -> tuple[list[Path], list[str]]:
    """Write a study's figures as SVG and its tables as Markdown and LaTeX; the paths, and the figures left out.

    Raises `reports.pages.export.ExportError` where an installed Chromium fails; without one, figures are left out.
    """
    from reports.pages.export import export_study as export  # noqa: PLC0415 (keeps the import cheap)

    return export(study_dir, target)


def table(summary: StudySummary) -> tuple[tuple[str, ...], ...]:
    """Rows of text for a closing table, the header first."""
    from reports.wording.answers import closing_table  # noqa: PLC0415 (keeps the import cheap)

    return closing_table(summary)


def open_arms(study_dir: Path | str) -> tuple[str, ...]:
    """The arms that more seeds could settle, decided by the judging part alone: verdicts compare the test part."""
    from reports.findings.summary import open_arms as found  # noqa: PLC0415 (keeps the import cheap)
    from reports.findings.summary import summarise as summarised  # noqa: PLC0415
    from reports.reading.collect import collect  # noqa: PLC0415
    from reports.reading.units import judging  # noqa: PLC0415

    return found(summarised(judging(collect(study_dir))))


def render_search(search_dir: Path | str) -> Path:
    """Write the report of a search, one self-contained HTML file, and return its path."""
    from reports.pages.search_page import render  # noqa: PLC0415 (keeps the import cheap)

    return render(Path(search_dir))


def search_table(search_dir: Path | str) -> tuple[tuple[str, ...], ...]:
    """The best trials as rows of text, the header first; every trial of a search that is not judged."""
    from reports.findings.searches import read_search  # noqa: PLC0415 (keeps the import cheap)
    from reports.wording.search_tables import closing_table  # noqa: PLC0415

    return closing_table(read_search(Path(search_dir))).lines


def search_answer(search_dir: Path | str) -> str:
    """The answer of a search in one sentence."""
    from reports.findings.searches import read_search  # noqa: PLC0415 (keeps the import cheap)
    from reports.wording.search_words import headline  # noqa: PLC0415

    return headline(read_search(Path(search_dir)))

"""`ablate.atlas`: a static site with the results on every claim and variant."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.study.written import RESULTS, SHIPPED, read_study, shipped
from ablate.wings.catalogue.model_table import published_model, text
from ablate.wings.catalogue.parts import Plain
from ablate.wings.catalogue.shipped import catalogue
from ablate.wings.plugins.plugin_files import check_groups
from ablate.wings.results.document import RecordedResult
from ablate.wings.results.recorded import read
from ablate.wings.science.claim_spec import ClaimSpec
from ablate.wings.science.handbook import handbook
from ablate.wings.science.markdown import findings_files, tables_file
from ablate.wings.science.recording import results_of_store
from ablate.wings.science.site import atlas_pages, report_paths
from ablate.wings.science.sources import PAPERS, CatalogueEntry, Sources, StatedStudy, VariantSetting, papers
from store import Store, write_text
from store.errors import ArgumentError

if TYPE_CHECKING:
    from ablate.wings.catalogue.catalogue import CataloguedPart


def atlas(
    sources: Sequence[str | Path] = (),
    *,
    out: str | Path,
    findings: str | Path | None = None,
    tables: str | Path | None = None,
) -> Path:
    """Write the atlas: a card for each claim, a page for each variant, and the table of published models.

    Args:
        sources: stores, folders of recorded results, or single result files; if empty, the results that ship.
        out: the folder of the site.
        findings: a Markdown file to write a summary of at most 1,500 words to.
        tables: a Markdown file whose tables of results, between markers, are updated.

    Returns:
        The path of the index page.

    Raises:
        AblateError: a source is none of these, or is damaged; `tables` has no marker, or names an absent result.

    Example:
        >>> ablate.atlas(["runs", "studies/results"], out="site")
        PosixPath('site/index.html')
    """
    results, pages = gathered(sources or [RESULTS])
    known = known_sources()
    texts = {
        Path(out) / path: text for path, text in atlas_pages(results, known, report_paths(Path(out), pages)).items()
    }
    if findings is not None:
        texts |= findings_files(results, known, Path(findings))
    if tables is not None:
        texts |= tables_file(results, study_files(), Path(tables))
    write_texts(texts)
    return Path(out) / "index.html"


def study_files() -> dict[str, Path]:
    """Files of the shipped studies by name, replications of papers included."""
    studies = {name: SHIPPED / f"{name}.yaml" for name in shipped()}
    return studies | {name: PAPERS / f"{name}.yaml" for name in papers()}


def gathered(sources: Sequence[str | Path]) -> tuple[tuple[RecordedResult, ...], dict[str, Path]]:
    """One result per study and scale, and the reports that exist, by name. Later sources override earlier ones."""
    results: dict[str, RecordedResult] = {}
    pages: dict[str, Path] = {}
    for source in map(Path, sources):
        for result, page in _results_of(source):
            results[result.name] = result
            pages.pop(result.name, None)
            if page is not None:
                pages[result.name] = page
    return tuple(results[name] for name in sorted(results)), pages


def _results_of(source: Path) -> Iterator[tuple[RecordedResult, Path | None]]:
    if Store(source).exists:
        yield from results_of_store(source)
    elif source.is_file():
        yield read(source), None
    elif source.is_dir():
        yield from ((read(path), None) for path in sorted(source.glob("*@*.json")))
    else:
        raise ArgumentError("sources", "expected a store, or a file or folder of recorded results", str(source))


def known_sources() -> Sources:
    """The shipped studies as written, the catalogue, the published models, and the handbook."""
    check_groups()
    known = catalogue()
    return Sources(
        tuple(_stated(name) for name in shipped() if "search" not in read_study(name).document.data),
        tuple(_entry(axis, each) for axis, of in known["variants"].items() for each in of),
        tuple(map(published_model, known["presets"])),
        tuple(handbook().values()),
    )


def _stated(name: str) -> StatedStudy:
    """A study file as written, with the additions of its scales. No models are built."""
    data = read_study(name).document.data
    layers = [data, *(data.get("scales") or {}).values()]
    arms = {arm: edits for layer in reversed(layers) for arm, edits in _arms_in(layer)}
    specs = (ClaimSpec.model_validate(each) for layer in layers for each in layer.get("claims") or ())
    claims = (each.stated(data["baseline"], planned="", screens="factors" in data) for each in specs)
    source, labels = data.get("source") or "", data.get("labels") or {}
    return StatedStudy(name, data["question"], source, arms, tuple(claims), data.get("needs"), labels)


def _arms_in(layer: Plain) -> Iterator[tuple[str, Plain]]:
    """Arms and factors with their edits. The arms of a grid or search are not named: its settings take their place."""
    for section in ("arms", "factors"):
        named = ((name, edits or {}) for name, edits in (layer.get(section) or {}).items())
        yield from ((name, edits) for name, edits in named if isinstance(edits, Mapping) and "." not in name)
    for values in (layer.get("grid"), (layer.get("search") or {}).get("space")):
        yield from ((path, {path: None}) for path in values or {})


def _entry(axis: str, part: CataloguedPart) -> CatalogueEntry:
    settings = []
    for key, found in part["settings"].items():
        default = found["default"]
        if isinstance(default, Mapping):
            shown = str(default.get("kind") or default)
        else:
            shown = "null" if default is None else text(default) or "[]"
        settings.append(VariantSetting(key, shown, found["doc"]))
    return CatalogueEntry(axis, part["name"], part["documentation"], tuple(settings))


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write texts after checking every path, so that a mistaken path leaves nothing written."""
    for path in texts:
        # The path may be that of a folder, or lie below a file.
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        above = next(folder for folder in path.absolute().parents if folder.exists())
        if not above.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(above))
    for path, content in texts.items():
        write_text(path, content)

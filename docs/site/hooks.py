"""Build hooks of the documentation site. README and findings become pages, links to files outside `docs` lead to
copies, the notebook is shown with its outputs, the reference is generated from code, long records have one page per
entry, and search ranks guides above them."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import notebook
import records
import reference

from ablate.study.written import RESULTS
from ablate.wings.science.atlas import gathered, known_sources
from ablate.wings.science.site import atlas_pages

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
FOLDER_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)\)")
BESIDE = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "studies/FINDINGS.md",
    "studies/LOG.md",
)
"""Pages outside `docs`."""
LEFT_OUT = "studies/archive"
"""Files that can only be read in the repository."""
ATLAS = "claims"
"""Folder of the atlas on the site."""
RECORDS = ("docs/store_documents.md", "docs/faults.md", "studies/LOG.md", "CHANGELOG.md")
"""Pages split into one page per entry: readers look up single entries, and a whole page would be up to 20
screens tall."""
GUIDE, RECORD = 2.0, 0.2
"""Search ranks of guides and of records; other pages have 1."""


def on_files(files: Files, config: Any) -> Files:
    for path in BESIDE:
        files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
    for path, text in {"notebook.md": notebook.page(notebook.read()), **reference.pages()}.items():
        files.append(File.generated(config, path, content=text))
    for path in RECORDS:
        for page, text in records.entries(site_path(path), (ROOT / path).read_text(encoding="utf-8")).items():
            files.append(File.generated(config, page, content=text))
    for path, text in atlas().items():
        if not path.endswith(".md"):  # Markdown files would be rendered
            files.append(File.generated(config, f"{ATLAS}/{path}", content=text))
    files.append(File.generated(config, "site.css", abs_src_path=str(Path(__file__).with_name("site.css"))))
    pages = [*(ROOT / path for path in BESIDE), *(ROOT / "docs").rglob("*.md")]
    for path in sorted({target for page in pages for target in targets(page)}):
        if files.get_file_from_path(site_path(path)) is None and (ROOT / path).is_file():
            files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
    return files


def on_post_build(config: Any) -> None:
    """Write the Markdown files that atlas pages offer for copying."""
    for path, text in atlas().items():
        if path.endswith(".md"):
            (Path(config.site_dir) / ATLAS / path).write_text(text, encoding="utf-8")


@cache
def atlas() -> dict[str, str]:
    """Pages of the atlas of the results that ship."""
    return atlas_pages(gathered([RESULTS])[0], known_sources())


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    here = page.file.src_uri
    record = next((path for path in RECORDS if here.startswith(site_path(path).removesuffix(".md"))), None)
    page.meta["search"] = {"boost": rank(here, record)}
    if here.startswith("reference/"):
        return markdown
    if record is not None and here == site_path(record):
        markdown = records.index(here, markdown)
    folder = os.path.dirname(record or repository_path(here))  # noqa: PTH120 (of a path of the site)
    if here == "atlas.md":
        markdown += f"\n[Open the atlas]({ATLAS}/index.html) of the results that ship with the project.\n"
    text = FOLDER_LINK.sub(lambda found: unlinked(found, folder), markdown)
    return LINK.sub(lambda found: rewritten(found, folder, here), text)


def rank(here: str, record: str | None) -> float:
    if record is not None or here.startswith("benchmarks/"):
        return RECORD
    return 1.0 if here.startswith(("reference/", "studies/")) else GUIDE


def unlinked(found: re.Match[str], folder: str) -> str:
    """The bare text of a link to a folder or to a file without a page; any other link unchanged."""
    path = os.path.normpath(os.path.join(folder, found[2]))  # noqa: PTH118 (as below)
    return found[1] if (ROOT / path).is_dir() or path.startswith(LEFT_OUT) else found[0]


def rewritten(found: re.Match[str], folder: str, here: str) -> str:
    """Rewrite a link from the repository's layout to the site's."""
    path = os.path.normpath(os.path.join(folder, found[1]))  # noqa: PTH118 (as above)
    return f"]({os.path.relpath(site_path(path), os.path.dirname(here) or '.')}{found[2] or ''})"  # noqa: PTH120


def targets(page: Path) -> set[str]:
    """Repository files to which a page links."""
    folder = page.parent.relative_to(ROOT)
    links = LINK.finditer(page.read_text(encoding="utf-8"))
    found = {os.path.normpath(folder / link[1]) for link in links}
    return {path for path in found if not path.startswith(LEFT_OUT)}


def site_path(path: str) -> str:
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def repository_path(path: str) -> str:
    return "README.md" if path == "index.md" else path if path in BESIDE else f"docs/{path}"

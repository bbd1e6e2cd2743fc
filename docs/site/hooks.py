"""Builds the site from the repository as it is: README and the findings are pages, links to files outside `docs` lead
to copies of these, the notebook is shown with its outputs, and the reference is generated from code."""

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
import reference

from ablate.api.atlas import RESULTS, gathered, known_sources
from reports.atlas.site import atlas_pages

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
FOLDER_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)\)")
BESIDE = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "studies/FINDINGS.md",
    "studies/LOG.md",
    "studies/archive/findings.md",
)
"""Pages that are not in `docs`."""
ATLAS = "claims"
"""Folder of the atlas on the site."""


def on_files(files: Files, config: Any) -> Files:
    for path in BESIDE:
        files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
    for path, text in {"notebook.md": notebook.page(notebook.read()), **reference.pages()}.items():
        files.append(File.generated(config, path, content=text))
    for path, text in atlas().items():
        if not path.endswith(".md"):  # which would be rendered
            files.append(File.generated(config, f"{ATLAS}/{path}", content=text))
    files.append(File.generated(config, "site.css", abs_src_path=str(Path(__file__).with_name("site.css"))))
    pages = [*(ROOT / path for path in BESIDE), *(ROOT / "docs").rglob("*.md")]
    for path in sorted({target for page in pages for target in targets(page)}):
        if files.get_file_from_path(site_path(path)) is None and (ROOT / path).is_file():
            files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
    return files


def on_post_build(config: Any) -> None:
    """Add the Markdown that pages of the atlas offer to copy."""
    for path, text in atlas().items():
        if path.endswith(".md"):
            (Path(config.site_dir) / ATLAS / path).write_text(text, encoding="utf-8")


@cache
def atlas() -> dict[str, str]:
    """Pages of the atlas of the results that ship."""
    return atlas_pages(gathered([RESULTS])[0], known_sources())


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    here = page.file.src_uri
    if here.startswith("reference/"):
        return markdown
    folder = os.path.dirname(repository_path(here))  # noqa: PTH120 (of a path of the site)
    if here == "atlas.md":
        markdown += f"\n[Open the atlas]({ATLAS}/index.html) of the results that ship with the project.\n"
    text = FOLDER_LINK.sub(lambda found: unlinked(found, folder), markdown)
    return LINK.sub(lambda found: rewritten(found, folder, here), text)


def unlinked(found: re.Match[str], folder: str) -> str:
    """The text of a link to a folder, which has no page; any other link as it is."""
    return found[1] if (ROOT / folder / found[2]).is_dir() else found[0]


def rewritten(found: re.Match[str], folder: str, here: str) -> str:
    """A link from the repository's layout to the site's."""
    path = os.path.normpath(os.path.join(folder, found[1]))  # noqa: PTH118 (as above)
    return f"]({os.path.relpath(site_path(path), os.path.dirname(here) or '.')}{found[2] or ''})"  # noqa: PTH120


def targets(page: Path) -> set[str]:
    """Files of the repository that a page links to."""
    folder = page.parent.relative_to(ROOT)
    links = LINK.finditer(page.read_text(encoding="utf-8"))
    return {os.path.normpath(folder / link[1]) for link in links}


def site_path(path: str) -> str:
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def repository_path(path: str) -> str:
    return "README.md" if path == "index.md" else path if path in BESIDE else f"docs/{path}"

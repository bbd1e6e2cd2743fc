"""docs/store_documents.md says what the documents' types say."""

from __future__ import annotations

import inspect
from pathlib import Path

from store import documents
from store.documents import Document, Part
from store.extensions import modules_of
from tools.store_reference import reference

PAGE = (Path(__file__).parents[2] / "docs" / "store_documents.md").read_text(encoding="utf-8")


def test_the_reference_is_current() -> None:
    assert reference() == PAGE, "run python -m tools.store_reference > docs/store_documents.md"


def test_every_field_of_every_document_has_a_row_with_its_meaning() -> None:
    modules = [documents, *modules_of("store.documents")]
    values = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    parts = [value for value in values if issubclass(value, Part)]
    for part in set(parts) - {Part}:
        section = PAGE.partition(f"### {part.__name__}\n")[2].partition("\n### ")[0]
        own = part.model_fields.keys() & part.__annotations__.keys()
        missing = [name for name in own if name != "version" and not _meaning(section, name)]
        assert section and not missing, (part.__name__, missing)
    assert len(parts) > 40 and Document in parts


def _meaning(section: str, field: str) -> str:
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith(f"| `{field}` |")]
    return rows[0][-1].strip(" |") if len(rows) == 1 else ""

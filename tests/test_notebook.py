"""The notebook of the documentation runs, and what it shows is what it gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.test_imports import ROOT


@pytest.fixture(scope="module")
def notebook() -> ModuleType:
    """`docs/site/notebook.py`, which is in no package."""
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "docs" / "site" / "notebook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_cell_runs_and_gives_what_the_notebook_shows(notebook: ModuleType, tmp_path: Path) -> None:
    """Losses may differ from machine to machine: of outputs, kinds and tables' shapes are compared."""
    stored = notebook.read()
    now = notebook.executed(stored, tmp_path)
    codes = [(was, new) for was, new in zip(stored, now, strict=True) if was["cell_type"] == "code"]
    assert len(codes) == 6
    for was, new in codes:
        assert list(map(shape, was["outputs"])) == list(map(shape, new["outputs"])), "run python docs/site/notebook.py"
    assert not [output for was, _ in codes for output in was["outputs"] if str(ROOT) in str(output)]


def shape(output: dict) -> tuple[str, int]:  # type: ignore[type-arg]
    """Kind, and lines."""
    text = output.get("text") or output["data"]["text/plain"]
    return output["output_type"], len(text)


def test_a_page_has_code_and_outputs_in_order(notebook: ModuleType) -> None:
    source = ["print(1)\n", "x = 2\n", "x"]
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": source, "outputs": []},
        {"cell_type": "code", "source": ["y = x + 1"], "outputs": []},
    ]
    wrapped = '<pre style="white-space: pre-wrap"><code>{}</code></pre>'.format
    blocks = notebook.page(notebook.executed(cells, Path.cwd())).split("\n\n")
    fenced = ["```python\nprint(1)\nx = 2\nx\n```", *map(wrapped, "12"), "```python\ny = x + 1\n```\n"]
    assert blocks == ["# Title", *fenced]

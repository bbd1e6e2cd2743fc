"""The documentation's notebook: executed (`python docs/site/notebook.py`), and as a page of the site.

Cells run in one namespace of this process, in an empty folder, so neither Jupyter nor a kernel has to be installed.
"""

from __future__ import annotations

import ast
import html
import io
import json
import os
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[1] / "notebook.ipynb"

Cell = dict[str, Any]


def read(path: Path = PATH) -> list[Cell]:
    cells: list[Cell] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells


def executed(cells: list[Cell], folder: Path) -> list[Cell]:
    """The same cells with the outputs of a new execution. An exception in a cell propagates."""
    before, names = Path.cwd(), {"__name__": "__main__"}
    os.chdir(folder)
    try:
        return [_executed(cell, number, names) for number, cell in enumerate(cells, 1)]
    finally:
        os.chdir(before)


def _executed(cell: Cell, number: int, names: dict[str, Any]) -> Cell:
    if cell["cell_type"] != "code":
        return cell
    *body, last = ast.parse("".join(cell["source"])).body
    if not isinstance(last, ast.Expr):
        body, last = [*body, last], ast.Expr(ast.parse("None", mode="eval").body)
    with redirect_stdout(io.StringIO()) as out:
        exec(compile(ast.Module(body, []), f"<cell {number}>", "exec"), names)
        value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)
    printed = [{"output_type": "stream", "name": "stdout", "text": _lines(out.getvalue())}] if out.getvalue() else []
    shown = [] if value is None else [_result(value, number)]
    return {**cell, "execution_count": number, "outputs": [*printed, *shown]}


def _result(value: Any, number: int) -> dict[str, Any]:
    """Output entry for the value of a cell's last expression, in Jupyter's format."""
    data = {"text/plain": _lines(repr(value))}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = _lines(value._repr_html_())
    return {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def page(cells: list[Cell]) -> str:
    """The notebook as Markdown."""
    return "\n\n".join(part for cell in cells for part in _parts(cell)) + "\n"


def _parts(cell: Cell) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *map(_output, cell["outputs"])]


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _wrapped("".join(output["text"]))
    data = output["data"]
    if "text/html" in data:
        # a blank line would end the HTML block
        lines = [line for line in "".join(data["text/html"]).splitlines() if line.strip()]
        return "<div>\n" + "\n".join(lines) + "\n</div>"
    return _wrapped("".join(data["text/plain"]))


def _wrapped(text: str) -> str:
    """Preformatted text that wraps, since sentences are longer than a page is wide."""
    return f'<pre style="white-space: pre-wrap"><code>{html.escape(text.rstrip())}</code></pre>'


def main() -> None:
    """Execute the notebook and store its outputs."""
    document = json.loads(PATH.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        document["cells"] = executed(document["cells"], Path(folder))
    PATH.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

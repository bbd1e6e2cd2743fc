"""Tables as Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from reports.page.wording.table import Table

LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"−": "$-$", "–": "--", "±": r"$\pm$", "×": r"$\times$", "‖": r"$\|$", "Δ": r"$\Delta$", "∞": r"$\infty$"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "\n": " "},
        **{power: f"$^{{{digit}}}$" for power, digit in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)},
    }
)
MARKDOWN = str.maketrans({"|": r"\|", "\n": " ", "<": "&lt;", ">": "&gt;", "&": "&amp;", "*": r"\*", "`": r"\`"})


def markdown(table: Table) -> str:
    """A table with a rule under its header; columns of numbers are right-aligned."""
    rule = [":--" if i < table.labels else "--:" for i in range(len(table.columns))]
    lines = [[cell.translate(MARKDOWN) for cell in row] for row in table.lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in (lines[0], rule, *lines[1:]))


def latex(table: Table) -> str:
    """A tabular with booktabs rules."""
    lines = [" & ".join(cell.translate(LATEX) for cell in row) + r" \\" for row in table.lines]
    columns = "".join("l" if i < table.labels else "r" for i in range(len(table.columns)))
    body = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
    return "\n".join([*body, r"\end{tabular}", ""])


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text, header first, as an HTML table without styles."""
    header, *body = rows
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in header)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"

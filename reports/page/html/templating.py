"""Rendering of the templates beside this file. All outside text is escaped, and no page makes network requests."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from store.extensions import modules_of

FIGURES = ("rows.js", "stamp.js", "labels.js", "figures.js")
"""Scripts of every page with figures."""
STYLES = ("palette.css", "report.css", "ranked.css", "claims.css")
"""Styles of every page; later ones take precedence."""
SECTIONS = "reports.page.sections"
"""Package of sections, and place of those that wings add."""
MOST_ROWS = 200
"""Most rows of a long table that a page has as HTML."""


@cache
def environment(own: Path | None = None) -> Environment:
    """Templates by name: those of the folder `own`, and those beside this file."""
    # a section of a wing has its template beside it
    wings = [Path(place).parent for wing in modules_of(SECTIONS) for place in wing.__path__]
    found = Environment(
        loader=ChoiceLoader([FileSystemLoader([*([own] if own else []), *wings]), PackageLoader("reports.page.html")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["coded"] = coded
    found.filters["packed"] = lambda rows: packed(compact(rows))
    found.globals["MOST_ROWS"] = MOST_ROWS
    return found


def coded(sentence: str) -> Markup:
    """A sentence as HTML, with text between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))


def source(name: str, own: Path | None = None) -> str:
    """Text of a template file, unrendered."""
    loader = environment(own).loader
    assert loader is not None
    return loader.get_source(environment(own), name)[0]


def render(template: str, scripts: tuple[str, ...], data: Any, own: Path | None = None, **context: Any) -> str:
    """A page with figures: a template with Plotly, our own scripts, and their `data`, which includes `figures`. own:
    the folder of templates and scripts that are not beside this file.

    Plotly and the data are compressed to keep the page small; the browser unpacks them.
    """
    script = "".join(source(name, own) for name in ("unpack.js", *scripts))
    plotly = plotly_js(data["figures"].values())
    return (
        environment(own)
        .get_template(template)
        .render(
            **context,
            style=Markup("".join(map(source, STYLES))),
            packed={
                "plotly": _packed_once(plotly),
                "data": packed(compact(data)),
            },
            script=Markup(script),
            policy=_policy(plotly, script),
        )
    )


def render_plain(
    template: str, styles: tuple[str, ...], script: str = "", own: Path | None = None, **context: Any
) -> str:
    """A page without figures: a template with its styles in addition to the common ones, and an optional script. own:
    the folder of templates that are not beside this file."""
    return (
        environment(own)
        .get_template(template)
        .render(
            **context,
            style=Markup("".join(source(name, own) for name in (*STYLES, *styles))),
            script=Markup(script),
            policy=_policy(*filter(None, [script])),
        )
    )


def compact(data: Any) -> str:
    """JSON without spaces."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def packed(text: str) -> Markup:
    """Text in the form that `unpack.js` reads: deflated, in base 85 without `<`, so that it cannot end its element."""
    deflate = zlib.compressobj(7, wbits=-zlib.MAX_WBITS)  # level 9 takes twice as long for 1 %
    return Markup(base64.b85encode(deflate.compress(text.encode()) + deflate.flush()).decode().replace("<", ","))


_packed_once = cache(packed)


def _policy(*scripts: str) -> str:
    """Content security policy that allows only these scripts, inline styles, and nothing from the network."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests) or "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


CARTESIAN = frozenset(
    {
        "bar",
        "box",
        "contour",
        "heatmap",
        "histogram",
        "histogram2d",
        "histogram2dcontour",
        "image",
        "pie",
        "scatter",
        "scatterternary",
        "violin",
    }
)
"""Kinds of traces that the smaller plotly.js supports."""


def plotly_js(figures: Any) -> str:
    """plotly.js with the line ends that a browser sees, so that its hash holds. The file with only cartesian traces, a
    third of the size, is used if the figures draw no others.

    `templates/plotly/plotly-cartesian.min.js` is the file of that name from the npm package
    `plotly.js-cartesian-dist-min`, unchanged, in the version that the plotly of constraints.txt contains. To renew it:
    `npm pack plotly.js-cartesian-dist-min@VERSION`.
    """
    if not figures:
        return ""
    kinds = {trace.get("type", "scatter") for figure in figures for trace in figure["data"]}
    return _plotly_file(cartesian=kinds <= CARTESIAN)


@cache
def _plotly_file(*, cartesian: bool) -> str:
    if cartesian:
        file = resources.files("reports.page.html") / "templates" / "plotly" / "plotly-cartesian.min.js"
        return file.read_text(encoding="utf-8")
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 (slow to load, and few pages need it)

    return str(get_plotlyjs()).replace("\r\n", "\n")

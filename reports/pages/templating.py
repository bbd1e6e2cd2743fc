"""The templates beside this file, and how they are filled: everything that comes from outside is escaped, and no page
asks the network for anything."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs


@cache
def environment() -> Environment:
    return Environment(
        loader=PackageLoader("reports.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def source(name: str) -> str:
    """A file beside the templates, as it stands."""
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]


def render(template: str, scripts: tuple[str, ...], data: Any, **context: Any) -> str:
    """A page of figures: one template with Plotly, our own scripts, and `data`, which they find in `#data`."""
    script = "".join(map(source, scripts))
    return (
        environment()
        .get_template(template)
        .render(
            **context,
            style=Markup(source("report.css")),
            plotly=Markup(_plotly()),
            script=Markup(script),
            data=as_json(data),
            policy=_policy(_plotly(), script),
        )
    )


def as_json(document: Any) -> Markup:
    """JSON that cannot end its script element."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@cache
def _plotly() -> str:
    """plotly.js with line ends as a browser reads them, so that its hash holds."""
    return str(get_plotlyjs()).replace("\r\n", "\n")


def _policy(*scripts: str) -> str:
    """A content security policy: these very scripts, inline styles, and nothing from anywhere."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )

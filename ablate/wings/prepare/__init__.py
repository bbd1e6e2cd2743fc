"""Help before a run: a starter study, the schema and the completion for writing it, and its data put into the store."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    commands=("new", "data", "schema", "completion"),
    groups={"new": "ask", "data": "ask", "schema": "ask", "completion": "ask"},
    folded={"data": ("plan", "--data"), "schema": ("new", "--schema"), "completion": ("new", "--completion")},
    face={"preparing": ("prepare",), "schema": ("study_schema",), "starting": ("new",)},
    adds={"ablate.study.reading": "schema"},
)

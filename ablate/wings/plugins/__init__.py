"""Plug-ins: files of a user that add variants, optimizers, data sources and so on to their folders."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(face={"plugin_files": ("plug_in",)}, adds={"ablate.cli": "plugin_files"})

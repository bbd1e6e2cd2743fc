"""Stores on the move: runs and studies packed into a file, merged into another store, and checked."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    commands=("check", "pack", "merge"),
    needs=("ablate/wings/named", "evals/harness"),
    adds={"store.documents": ("archive_file", "whole_folders")},
    groups={"pack": "share", "merge": "share"},
    folded={"check": ("pack", "--check")},
    face={"checking": ("check",), "packing": ("Packed", "pack"), "merging": ("Merged", "merge")},
)

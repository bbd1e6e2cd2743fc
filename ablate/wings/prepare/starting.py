"""`ablate.new`: a starter study to edit."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from store.errors import ArgumentError
from store.paths import NAME


def new(study: str | Path) -> Path:
    """Write a commented study that runs as is.

    Args:
        study: the name of the new study, or its path. No existing file is overwritten.

    Returns:
        The path of the study.

    Raises:
        ArgumentError: the name cannot be that of a study, or the file exists.

    Example:
        >>> ablate.new("gated_ffn")
        PosixPath('gated_ffn.yaml')
    """
    path = Path(study)
    path = path if path.suffix in (".yaml", ".yml") else path.parent / f"{path.name}.yaml"
    if not NAME.fullmatch(path.stem):
        raise ArgumentError("study", "a name has letters, digits, '_', '+' and '-', at most 40", path.stem)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = resources.files("ablate.wings.prepare").joinpath("start.yaml").read_text(encoding="utf-8")
    try:
        # Exclusive creation: concurrent commands do not overwrite each other's file.
        with path.open("x", encoding="utf-8") as file:
            file.write(text.replace("FILE", os.fspath(path)))
    except FileExistsError:
        raise ArgumentError("study", f"{path} exists already") from None
    return path

"""Archives unpacked as every Python from 3.11 on can."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> None:
    """Python 3.11.4 has the filter of safe members, and later ones ask for it; those before leave it alone."""
    with tarfile.open(archive) as found:
        found.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        found.extractall(folder)

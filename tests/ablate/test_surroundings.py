"""What lies beside a study is not taken for a package."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.cli import main
from tests.ablate.toy import toy_study

SHADOWING = ("random.py", "token.py", "statistics.py", "evals.py", "datasets/__init__.py", "zoo/__init__.py")


def test_a_study_runs_beside_files_named_like_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = toy_study(tmp_path, "{rms: {block.norm.kind: layernorm}}", steps=2)
    for name in SHADOWING:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"raise RuntimeError('{name} is not the package')\n")
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(path), "--scale", "cpu", "--set", "seeds=1"]) == 0

"""Descriptions of arms, shown beside their names."""

from __future__ import annotations

from pathlib import Path

import reports
from reports.page.html.page import render_page
from reports.page.wording import answers, arm_words
from tests.reports.factory import HOSTILE, Arm, StudyOf

LOSSES = [2.4, 2.41, 2.39]
EDITS = {
    "base": {"block.norm": "rmsnorm"},
    "wide": {"block.norm": "rmsnorm", "block.ffn": {"kind": "gelu", "d_ff": "4x"}, "canon": {}, "train.lr": 0.024},
    "hostile": {f"block.{HOSTILE}": ["q", True, HOSTILE * 9]},
}


def test_an_arm_is_what_it_has_beside_the_baseline(tmp_path: Path) -> None:
    arms = [Arm(name, LOSSES, edits=edits) for name, edits in EDITS.items()]
    summary = reports.summarise(StudyOf(arms, measured=False).write(tmp_path))
    base, wide, hostile = (each.gloss for each in answers.findings(summary))
    assert base == "norm=rmsnorm"
    assert wide == "ffn=gelu(d_ff=4x), canon={}, train.lr=0.024"
    assert hostile == f"{HOSTILE}=[q, true, {HOSTILE * 9}]"
    assert len(arm_words.short(hostile)) == arm_words.LONGEST
    page = render_page(summary)
    assert f">{wide}</span>" in page
    assert HOSTILE not in page

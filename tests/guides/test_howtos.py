"""The tour is short, and the how-tos' studies can be read: nanoGPT's model has nanoGPT's size."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import zoo
from ablate.study.reading import load_study
from ablate.training.optimizers.adamw import AdamW
from ablate.wings.plugins.plugin_files import NO_MIXERS, place_of
from tests.guides.guide import ROOT, files_of
from zoo import building_blocks
from zoo.ffns import Ffn, FfnLayer
from zoo.norms import Norm


def written(page: str, folder: Path) -> None:
    for path, text in files_of(page).items():
        (folder / path).write_text(text, encoding="utf-8")


def test_the_tour_is_short() -> None:
    assert len((ROOT / "docs" / "studies.md").read_text(encoding="utf-8").split()) <= 1500


def test_the_nanogpt_study_is_nanogpts_model(tmp_path: Path) -> None:
    written("howto_nanogpt.md", tmp_path)
    (tmp_path / "input.txt").write_text("To be, or not to be.\n" * 100, encoding="utf-8")
    study = load_study(tmp_path / "shakespeare.yaml", "gpu")
    of_bytes = {"vocab_size": 257}  # and the end of text
    learned, rope = (arm.model.model_copy(update=of_bytes) for arm in study.arms)
    # Matrices of attention and FFN, gains of two norms a layer and of the last, the tied embedding of 65 characters:
    # what nanoGPT prints as 10.65M, for which it leaves out the table of positions.
    of_nanogpt = 6 * (4 + 8) * 384**2 + (2 * 6 + 1) * 384 + 65 * 384
    assert of_nanogpt / 1e6 == pytest.approx(10.65, abs=0.005)
    assert zoo.cost(learned).params == of_nanogpt + (257 - 65) * 384 + 256 * 384 == 10_818_816
    assert zoo.cost(rope).params == zoo.cost(learned).params - 256 * 384
    assert isinstance(study.train.optimizer, AdamW) and study.train.optimizer.betas == (0.9, 0.99)
    assert study.budget.tokens == 5000 * 64 * 256


@pytest.mark.slow
def test_the_block_of_the_guide_is_a_plug_in_that_conforms(tmp_path: Path) -> None:
    """Its base class, too, comes from `zoo.building_blocks`."""
    written("howto_block.md", tmp_path)
    path = tmp_path / "sine.py"
    assert place_of(path) == ("zoo.ffns", "sine")
    program = (
        "import ablate, sys; ablate.plug_in('sine.py'); import zoo; from zoo.conformance.checking import conforms;"
        "conforms(zoo.load('small', **{'vocab_size': 61, 'd_model': 24, 'n_layers': 2, 'block.mixer.heads': 4,"
        " 'block.ffn': {'kind': 'sine', 'd_ff': 40}}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)


def test_the_file_of_a_layer_is_known_by_its_base_class(tmp_path: Path) -> None:
    """Each base class of building blocks that is no mixer's belongs to its own folder; the guide's is one."""
    written("howto_block.md", tmp_path)
    assert place_of(tmp_path / "sine.py") == ("zoo.ffns", "sine")
    folders = {Ffn: "zoo.ffns", FfnLayer: "zoo.ffns", Norm: "zoo.norms"}
    named = ((name, getattr(building_blocks, name)) for name in building_blocks.__all__)
    classes = [(name, cls) for name, cls in named if isinstance(cls, type)]
    assert {
        name: place for name, cls in classes for base, place in folders.items() if issubclass(cls, base)
    } == NO_MIXERS


def test_guides_import_building_blocks_from_one_place() -> None:
    for page in (
        "howto_block.md",
        "adding_a_mixer.md",
        "adding_a_scan.md",
        "adding_attention.md",
        "adding_a_variant.md",
    ):
        text = "\n".join(files_of(page).values())
        origins = set(re.findall(r"^from (zoo[\w.]*) import", text, re.MULTILINE))
        assert origins == {"zoo.building_blocks"}, page

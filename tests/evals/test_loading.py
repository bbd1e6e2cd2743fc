"""lm-eval's own tasks: found by name without indexing them all, over local files, skipped where there are no data."""

from __future__ import annotations

import gzip
import json
import math
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from lm_eval.tasks.manager import TaskManager
from tokenizers import Tokenizer

from evals import catalogue
from evals.harness import Evaluation, evaluate
from evals.lm import ZooLM
from evals.loading import UnknownTaskError, load_tasks
from evals.spec import EvalSpec
from tests.evals.bytelevel import EOS
from zoo.model import Decoder

PARADIGMS = ("wh_island", "transitive", "ellipsis_n_bar_1")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evals.datafiles._hub_answers", lambda: False)


@pytest.fixture
def blimp(tmp_path: Path) -> Path:
    """Three paradigms of few pairs, one of them shorter, in the forms that data come in."""
    folder = tmp_path / "blimp"
    folder.mkdir()
    for name, items in zip(PARADIGMS, (8, 8, 4), strict=True):
        rows = [{"sentence_good": f"The {name} {i} is.", "sentence_bad": f"{name} The is {i}."} for i in range(items)]
        if name == "wh_island":
            with gzip.open(folder / f"{name}.jsonl.gz", "wt") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        elif name == "transitive":
            (folder / name).mkdir()
            pl.DataFrame(rows).write_parquet(folder / name / "train-00000-of-00001.parquet")
        else:
            (folder / f"blimp_{name}.json").write_text(json.dumps(rows))
    return folder


def run(model: Decoder, tokenizer: Tokenizer, **settings: Any) -> Evaluation:
    return evaluate(model, tokenizer, [], EvalSpec(**settings), context=128, eos=EOS)


def test_a_handful_of_official_tasks_is_found_quickly() -> None:
    """In processor time: other programs may keep the disk."""
    catalogue._texts.cache_clear()
    start = time.process_time()
    found = catalogue.index(["blimp", "lambada_openai", "hellaswag"], [])
    assert time.process_time() - start < 4
    assert {"blimp", "blimp_wh_island", "lambada_openai", "hellaswag"} <= found.keys()
    assert len(list(catalogue.members(found["blimp"]))) == 67


@pytest.mark.slow
def test_names_are_found_where_lm_eval_finds_them() -> None:
    index = TaskManager().task_index
    names = sorted(index)[::10] + [name for name, entry in index.items() if entry.kind.name in ("GROUP", "TAG")]
    found = catalogue.index(names, [])
    for name in names:
        one, other = found[name], index[name]
        assert (one.kind, one.yaml_path, one.tags) == (other.kind, other.yaml_path, other.tags), name


def test_a_group_over_a_folder_is_the_mean_of_its_tasks(model: Decoder, byte_tokenizer: Tokenizer, blimp: Path) -> None:
    document, samples = run(model, byte_tokenizer, tasks=("blimp",), data={"blimp": str(blimp)})
    names = [f"blimp_{name}" for name in PARADIGMS]
    scores = {name: [s["acc"] for s in samples if s["task"] == name] for name in names}
    assert [len(values) for values in scores.values()] == [8, 8, 4]
    group = document["tasks"]["blimp"]["acc"]
    assert group["value"] == pytest.approx(np.mean([np.mean(values) for values in scores.values()]))
    errors = [np.std(values, ddof=1) / math.sqrt(len(values)) for values in scores.values()]
    assert group["stderr"] == pytest.approx(math.sqrt(sum(e * e for e in errors)) / 3)
    assert (group["chance"], group["items"], group["higher_is_better"]) == (0.5, 20, True)
    assert sorted(document["groups"]["blimp"]["tasks"]) == sorted(names)
    assert len(document["groups"]["blimp"]["missing"]) == len(document["skipped"]) == 64
    assert "causative" in document["skipped"]["blimp_causative"]


def test_a_pair_is_judged_by_the_likelihood_of_its_sentences(
    model: Decoder, byte_tokenizer: Tokenizer, blimp: Path
) -> None:
    _, samples = run(model, byte_tokenizer, tasks=("blimp_wh_island",), data={"blimp_wh_island": str(blimp)})
    lm = ZooLM(model, byte_tokenizer, eos=EOS, context=128)
    for sample in samples:
        i = sample["doc_id"]
        texts = [f"The wh_island {i} is.", f"wh_island The is {i}."]
        good, bad = (lm._loglikelihood_tokens([(("", ""), [EOS], list(f" {text}".encode()))])[0][0] for text in texts)
        assert sample["acc"] == float(good > bad)


def test_what_is_missing_is_named_with_how_to_fetch_it_and_the_rest_goes_on(
    model: Decoder, byte_tokenizer: Tokenizer, blimp: Path
) -> None:
    tasks = ("hellaswag", "blimp_transitive", "lambada_openai")
    document, _ = run(model, byte_tokenizer, tasks=tasks, data={"blimp_transitive": str(blimp)}, limit=3)
    assert set(document["tasks"]) == {"blimp_transitive"}
    assert set(document["skipped"]) == {"hellaswag", "lambada_openai"}
    reason = document["skipped"]["hellaswag"]
    assert "Rowan/hellaswag" in reason and "datasets.load_dataset('Rowan/hellaswag')" in reason
    assert "\n" not in reason
    everything = run(model, byte_tokenizer, tasks=("hellaswag",)).document
    assert everything["tasks"] == {}


def test_data_of_a_task_come_before_those_of_its_group(blimp: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"sentence_good": "a", "sentence_bad": "b"}))
    data = {"blimp_transitive": str(other), "blimp": str(blimp)}
    loaded = load_tasks(EvalSpec(tasks=("blimp",), data=data), [])
    assert {name: len(task.eval_docs) for name, task in loaded.tasks.items()} == {
        "blimp_wh_island": 8,
        "blimp_transitive": 1,
        "blimp_ellipsis_n_bar_1": 4,
    }


def test_data_without_the_fields_or_for_no_task_are_said(
    model: Decoder, byte_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    place = tmp_path / "rows.jsonl"
    place.write_text(json.dumps({"sentence": "a"}))
    found = run(model, byte_tokenizer, tasks=("wikitext",), data={"wikitext": str(place)}).document
    assert "has not the fields" in found["skipped"]["wikitext"] and "page" in found["skipped"]["wikitext"]
    place.write_text("{")
    broken = run(model, byte_tokenizer, tasks=("wikitext",), data={"wikitext": str(place)}).document
    assert "rows.jsonl cannot be read" in broken["skipped"]["wikitext"]
    with pytest.raises(UnknownTaskError, match="blimp"):
        load_tasks(EvalSpec(tasks=("heldout_pairs",), data={"blimp": str(place)}), [])


def test_few_shot_items_stand_before_each_item_but_where_a_task_has_none(
    model: Decoder, byte_tokenizer: Tokenizer, blimp: Path, tmp_path: Path
) -> None:
    place = tmp_path / "arc.jsonl"
    choices = {"text": ["red", "blue"], "label": ["A", "B"]}
    rows = [{"question": f"q{i}", "choices": choices, "answerKey": "A"} for i in range(6)]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"arc_easy": str(place), "blimp_transitive": str(blimp)}
    document = run(model, byte_tokenizer, tasks=tuple(data), data=data, fewshot=2).document
    assert document["fewshot"] == {"arc_easy": 2}
    assert "fewshot" not in run(model, byte_tokenizer, tasks=tuple(data), data=data).document


def test_real_paradigms_and_real_text(
    model: Decoder, byte_tokenizer: Tokenizer, real_text: Path, tmp_path: Path
) -> None:
    """Official tasks over 33 of BLiMP's paradigms and WikiText-2's own pages."""
    text = (real_text / "wikitext-2" / "test.txt").read_text(encoding="utf-8")
    pages = [page for page in re.split(r"(?m)^(?= = [^=].* = $)", text) if page.strip()][:4]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps({"page": page}) + "\n" for page in pages))
    data = {"blimp": str(real_text / "blimp"), "wikitext": str(tmp_path)}
    document = run(model, byte_tokenizer, tasks=("blimp", "wikitext"), data=data, limit=2).document
    assert len(document["groups"]["blimp"]["tasks"]) == 33
    assert document["tasks"]["blimp"]["acc"]["items"] == 66
    assert document["tasks"]["wikitext"]["bits_per_byte"]["stderr"] > 0

"""A task that cannot be run is named and skipped, and the scores of the others are what they are without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from evals.spec import EvalSpec, Evaluation
from tests.evals.bytelevel import EOS
from tests.evals.harness.evaluated import evaluate
from zoo.model import Decoder

GOOD = """
task: good
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/items.jsonl}}, cache_dir: {folder}/cache}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
BEAMS = """
task: beams
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/items.jsonl}}, cache_dir: {folder}/cache}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{choices[0]}}}}"
generation_kwargs: {{num_beams: 4, max_gen_toks: 4, until: ["."]}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""
CODE = {
    "question": "doc_to_text: !function own.fails",
    "results": 'process_results: !function own.fails_later\ndoc_to_text: "{{{{question}}}}"',
    "documents": 'process_docs: !function own.fails\ndoc_to_text: "{{{{question}}}}"',
}
OWN = """
def fails(doc):
    return doc["no such field"]

def fails_later(doc, results):
    raise ZeroDivisionError("nothing to divide by")
"""
GROUP = "group: both\ntask: [good, {bad}]\naggregate_metric_list: [{{metric: acc, weight_by_size: false}}]\n"


@pytest.fixture
def run(tmp_path: Path, model: Decoder, byte_tokenizer: Tokenizer) -> Callable[..., Evaluation]:
    items = [{"question": f"item {i}:", "choices": [" one", " two"], "answer": i % 2} for i in range(6)]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    (tmp_path / "good.yaml").write_text(GOOD.format(folder=tmp_path))
    (tmp_path / "own.py").write_text(OWN)

    def go(*tasks: str, **files: str) -> Evaluation:
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text.format(folder=tmp_path, bad=next(iter(files))))
        spec: Any = EvalSpec(tasks=tasks, include=(str(tmp_path),))
        return evaluate(model, byte_tokenizer, [], spec, context=64, eos=EOS)

    return go


def _bad(code: str) -> str:
    return GOOD.replace("task: good", "task: bad").replace('doc_to_text: "{{{{question}}}}"', CODE[code])


def test_settings_that_are_not_supported_are_named(run: Callable[..., Evaluation]) -> None:
    alone, found = run("good"), run("good", "beams", beams=BEAMS)
    assert found.document.skipped == {"beams": "its generation settings are not supported: num_beams"}
    assert found.document.scores == alone.document.scores
    assert found.samples == alone.samples


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("question", "its code fails at own.py:3: KeyError: 'no such field'"),
        ("results", "its code fails at own.py:6: ZeroDivisionError: nothing to divide by"),
        ("documents", "its code fails at "),
    ],
)
def test_code_that_raises_is_named_and_the_group_is_of_the_others(
    run: Callable[..., Evaluation], code: str, reason: str
) -> None:
    alone = run("good").document
    found = run("both", bad=_bad(code), both=GROUP).document
    assert list(found.skipped) == ["bad"]
    assert found.skipped["bad"].startswith(reason)
    assert found.scores["good"] == alone.scores["good"]
    assert found.scores["both"]["acc"].value == alone.scores["good"]["acc"].value
    assert (found.groups["both"].tasks, found.groups["both"].missing) == (("good",), ("bad",))


def test_a_home_that_cannot_be_written_is_no_obstacle(
    run: Callable[..., Evaluation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run("good").document
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "items.jsonl" / "datasets")
    homeless = GOOD.replace("task: good", "task: homeless").replace(", cache_dir: {folder}/cache", "")
    found = run("homeless", homeless=homeless).document
    assert (dict(found.skipped), found.scores["homeless"]) == ({}, alone.scores["good"])


def test_a_fault_of_the_model_is_no_tasks(run: Callable[..., Evaluation], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a kernel fails")

    monkeypatch.setattr(Decoder, "hidden", fail)
    with pytest.raises(RuntimeError, match="a kernel fails"):
        run("good")

"""Bits per byte of right answers, and lm-eval's task for early training, over items that are made here."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from evals.spec import EvalSpec, Evaluation
from tests.evals.bytelevel import EOS
from tests.evals.harness.evaluated import evaluate
from tests.evals.harness.test_failing_tasks import GOOD
from zoo.model import Decoder

ITEMS: list[dict[str, Any]] = [
    {"question": f"item {i}:", "choices": [f"one{i}", "deux é", "three and more"], "answer": i % 3} for i in range(7)
]
MMLU = [
    {"subject": "birds", "question": f"Does bird {i} fly?", "choices": [f"yes {i}", "no", "at night", "never"]}
    for i in range(9)
]


def _log_p(model: Decoder, context: str, answer: str) -> float:
    tokens = list((context + answer).encode())
    with torch.inference_mode():
        log_p = model(torch.tensor([tokens]))[0].double().log_softmax(-1)
    first = len(context.encode())
    return sum(float(log_p[i - 1, tokens[i]]) for i in range(first, len(tokens)))


def _run(model: Decoder, tokenizer: Tokenizer, **settings: Any) -> Evaluation:
    return evaluate(model, tokenizer, [], EvalSpec(**settings), context=512, eos=EOS)


def test_bits_per_byte_of_the_right_answers(model: Decoder, byte_tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    (tmp_path / "good.yaml").write_text(GOOD.format(folder=tmp_path))
    (tmp_path / "both.yaml").write_text(
        "group: both\ntask: [good]\naggregate_metric_list: [{metric: acc, weight_by_size: false}]\n"
    )
    found = _run(model, byte_tokenizer, tasks=("both",), include=(str(tmp_path),))
    answers = [(item["question"], " " + item["choices"][item["answer"]]) for item in ITEMS]
    nats = -np.array([_log_p(model, *answer) for answer in answers])
    sizes = np.array([len(answer.encode()) for _, answer in answers])
    score = found.document.scores["good"]["bits_per_byte"]
    assert score.value == pytest.approx(nats.sum() / sizes.sum() / math.log(2), rel=1e-5)
    left_out = (nats.sum() - nats) / (sizes.sum() - sizes) / math.log(2)
    assert score.stderr == pytest.approx(math.sqrt(6 / 7 * np.square(left_out - left_out.mean()).sum()), rel=1e-4)
    assert (score.higher_is_better, score.chance, score.items) == (False, None, 7)
    assert found.document.scores["both"]["bits_per_byte"].value == score.value
    assert [s.metrics["bits_per_byte"][1] for s in found.samples] == sizes.tolist()


def test_lm_evals_task_for_early_training(model: Decoder, byte_tokenizer: Tokenizer, tmp_path: Path) -> None:
    """`mmlu_early_training` over a stand-in for its data: log p of the right answer above the mean of the others'."""
    folder = tmp_path / "mmlu"
    folder.mkdir()
    for split, rows in {"test": MMLU[:4], "dev": MMLU[4:]}.items():
        lines = (json.dumps({**row, "answer": i % 4}) + "\n" for i, row in enumerate(rows))
        (folder / f"{split}.jsonl").write_text("".join(lines))
    found = _run(model, byte_tokenizer, tasks=("mmlu_early_training",), data={"mmlu_early_training": str(folder)})
    assert not found.document.skipped
    scores = found.document.scores["mmlu_early_training"]
    gaps = []
    for sample in found.samples:
        log_p = [float(each[0]) for each in sample.filtered_resps]
        right = log_p.pop(int(sample.target))
        gaps.append(right - np.mean(log_p))
    assert scores["likelihood"].value == pytest.approx(np.mean(gaps), rel=1e-6)
    assert scores["likelihood"].items == 4
    assert (scores["bits_per_byte"].value or 0) > 0

"""The task of docs/adding_a_synthetic_task.md, dropped into its folder: one file, and it is learnt and reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides.guide import followed

STUDY = """
question: Does width matter?
base: {preset: small, d_model: 16, n_layers: 1, block.mixer.heads: 2}
arms: {wide: {d_model: 24}}
seeds: 1
data: {source: reversal, length: [2, 4], symbols: 3, validation_examples: 24}
train: {context: 8, batch: 8, lr: 1e-2}
budget: {tokens: 640}
measure: null
tune: off
"""
PROGRAM = """
import contextlib, io
from ablate.cli import main
from ablate.data import parse, prepare
from ablate.data.sources._synthetic import SyntheticCorpus
from pathlib import Path

def run(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = main([*arguments, "--json"])
    assert status == 0, status
    return json.loads(out.getvalue())

corpus = prepare(parse({"source": "reversal", "length": [2, 5], "symbols": 4}), Path("data"))
examples = [
    (row.tolist(), asked.tolist())
    for question in corpus.questions({}, 20, 0)
    for row, asked in zip(question.tokens, question.targets)
]
study = run("run", "reversal.yaml", "--scale", "cpu", "--engine", "inprocess")
longer = run("eval", study["runs"][0]["digest"], "--at", "length=3,4", "--limit", "5")
print(json.dumps({
    "examples": examples,
    "arms": study["arms"],
    "page": "Accuracy by length" in Path(study["report"]).read_text(),
    "longer": [row["level"] for row in longer["sections"]["diagnostics"]["rows"]],
}))
"""


def backwards(tokens: list[int], targets: list[int]) -> bool:
    """A slow solver: what stands before the mark, from its end on."""
    mark = tokens.index(1)
    asked = [target for target in targets if target != -100]
    return asked == tokens[:mark][::-1]


@pytest.mark.slow
def test_a_dropped_file_is_learnt_and_reported(tmp_path: Path) -> None:
    (tmp_path / "reversal.yaml").write_text(STUDY, encoding="utf-8")
    said = followed("adding_a_synthetic_task.md", tmp_path, PROGRAM)
    assert len(said["examples"]) == 40
    assert all(backwards(tokens, targets) for tokens, targets in said["examples"])
    assert [set(arm["evals"]["reversal"]) for arm in said["arms"]] == [
        {"accuracy", "accuracy (length 2)", "accuracy (length 4)"}
    ] * 2
    assert said["page"]
    assert said["longer"] == [{"length": 3}, {"length": 4}]

"""The two files of docs/adding_an_evaluation.md, dropped into their folders: the figure is on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ablate.toy import toy_study
from tests.guides.guide import files_of, followed
from tests.reports.browsing import data_of

PROGRAM = """
import contextlib, io
from pathlib import Path
import torch
import zoo
from ablate.cli import main
from ablate.data import open_corpus
from store import Store
from ablate.study.reading import load_study
from ablate.study.study import StudyError

def run(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = main([*arguments])
    assert status == 0, status
    return out.getvalue()

asked = ("--set", "evals={tasks: [], confidence: {tokens: 256, bins: 5}}", "--set", "seeds=[0]")
study = json.loads(run("run", "toy.yaml", "--scale", "cpu", "--engine", "inprocess", "--json", *asked))
page = Path(study["report"]).read_text()
try:
    load_study(Path("toy.yaml"), "cpu", ["evals={confidence: {bin: 5}}"])
except StudyError as error:
    refused = str(error)

digest, store = study["runs"][0]["digest"], Store("runs")
(name,) = store.run_dir(digest).glob("evals-*.json")
stored = json.loads(name.read_text())
shown = run("eval", digest, "--confidence", "--bins", "4")

def by_hand():
    \"\"\"One token at a time, of the windows that items name.\"\"\"
    model = zoo.open(store.model_dir(digest)).eval()
    (corpus,) = (open_corpus(folder) for folder in Path("runs/data").iterdir() if folder.is_dir())
    tokens, _ = corpus.held_out_tokens("test")
    samples = [json.loads(line) for line in name.with_suffix(".samples.ndjson").read_text().splitlines()]
    for sample in samples[:2]:
        start = int(sample["doc_hash"])
        right = 0
        for place in range(start + 1, start + 33):
            with torch.no_grad():
                logits = model(torch.tensor([tokens[start:place].tolist()]))[0, -1]
            right += int(logits.argmax()) == int(tokens[place])
        yield sample["metrics"]["accuracy"], right / 32

print(json.dumps({
    "refused": refused,
    "arms": study["arms"],
    "page": page,
    "rows": stored["sections"]["confidence"]["rows"],
    "score": stored["scores"]["confidence"]["accuracy"],
    "by_hand": list(by_hand()),
    "shown": shown,
}))
"""


@pytest.mark.slow
def test_two_dropped_files_are_evaluated_compared_drawn_and_printed(tmp_path: Path) -> None:
    assert set(files_of("adding_an_evaluation.md")) == {
        "evals/evaluations/confidence.py",
        "reports/page/evaluations/confidence.py",
    }
    toy_study(tmp_path, "{wide: {d_model: 24}}", steps=20)
    said = followed("adding_an_evaluation.md", tmp_path, PROGRAM)
    assert "evals.confidence.bin: unknown key (did you mean 'bins'?)" in said["refused"]
    assert all(set(arm["evals"]["confidence"]) == {"accuracy"} for arm in said["arms"])
    assert said["arms"][1]["eval_differences"]["confidence"]["accuracy"]["items"] == 256 // 32
    assert "Accuracy by confidence" in said["page"]
    assert "confidence" in data_of(said["page"])["figures"]
    assert all(int(5 * row["confidence"]) == min(row["range"], 4) or row["confidence"] == 1 for row in said["rows"])
    assert [mean for mean, _ in said["by_hand"]] == pytest.approx([right for _, right in said["by_hand"]])
    assert 0 < said["score"]["value"] < 1
    assert "confidence" in said["shown"] and "accuracy" in said["shown"]

"""lm-eval's own tasks: found by name without indexing them all, over local files, skipped where there are no data."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import time
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lm_eval.tasks.manager import TaskManager
from tokenizers import Tokenizer

from evals.found import skipped_lines
from evals.harness import catalogue, datafiles
from evals.harness.__main__ import main
from evals.harness.datafiles import offline_first
from evals.harness.evaluations.tasks import TasksSpec
from evals.harness.lm import ZooLM
from evals.harness.loading import UnknownTaskError, load_tasks
from evals.spec import EvalSpec, Evaluation
from tests.evals.bytelevel import EOS
from tests.evals.harness.evaluated import evaluate
from zoo.model import Decoder

PARADIGMS = ("wh_island", "transitive", "ellipsis_n_bar_1")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


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


OWN = """
task: own
dataset_path: json
dataset_kwargs: {{data_files: {{test: rows.jsonl}}, cache_dir: {folder}/cache}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
"""


def run(model: Decoder, tokenizer: Tokenizer, **settings: Any) -> Evaluation:
    return evaluate(model, tokenizer, [], EvalSpec(**settings), context=128, eos=EOS)


def test_a_handful_of_official_tasks_is_found_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is on processor time, since other programs may keep the disk busy. Nothing was read of their folder
    before: this process knows it by another name."""
    (tmp_path / "tasks").symlink_to(catalogue.FOLDER)
    monkeypatch.setattr(catalogue, "FOLDER", tmp_path / "tasks")
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
    scores = {name: [s.metrics["acc"] for s in samples if s.task == name] for name in names}
    assert [len(values) for values in scores.values()] == [8, 8, 4]
    group = document.scores["blimp"]["acc"]
    assert group.value == pytest.approx(np.mean([np.mean(values) for values in scores.values()]))
    errors = [np.std(values, ddof=1) / math.sqrt(len(values)) for values in scores.values()]
    assert group.stderr == pytest.approx(math.sqrt(sum(e * e for e in errors)) / 3)
    assert (group.chance, group.items, group.higher_is_better) == (0.5, 20, True)
    assert sorted(document.groups["blimp"].tasks) == sorted(names)
    assert len(document.groups["blimp"].missing) == len(document.skipped) == 64
    assert "causative" in document.skipped["blimp_causative"]


def test_a_pair_is_judged_by_the_likelihood_of_its_sentences(
    model: Decoder, byte_tokenizer: Tokenizer, blimp: Path
) -> None:
    _, samples = run(model, byte_tokenizer, tasks=("blimp_wh_island",), data={"blimp_wh_island": str(blimp)})
    lm = ZooLM(model, byte_tokenizer, eos=EOS, context=128)
    for sample in samples:
        i = sample.doc_id
        texts = [f"The wh_island {i} is.", f"wh_island The is {i}."]
        good, bad = (lm._loglikelihood_tokens([(("", ""), [EOS], list(f" {text}".encode()))])[0][0] for text in texts)
        assert sample.metrics["acc"] == float(good > bad)


def test_what_is_missing_is_named_with_how_to_fetch_it_and_the_rest_goes_on(
    model: Decoder, byte_tokenizer: Tokenizer, blimp: Path
) -> None:
    tasks = ("hellaswag", "blimp_transitive", "lambada_openai")
    document, _ = run(model, byte_tokenizer, tasks=tasks, data={"blimp_transitive": str(blimp)}, limit=3)
    assert set(document.scores) == {"blimp_transitive"}
    assert set(document.skipped) == {"hellaswag", "lambada_openai"}
    reason = document.skipped["hellaswag"]
    assert "Rowan/hellaswag" in reason and reason.endswith("python -m evals fetch hellaswag")
    assert "\n" not in reason


def test_a_group_without_data_is_one_line_with_how_to_fetch_all_of_it(
    model: Decoder, byte_tokenizer: Tokenizer
) -> None:
    document, _ = run(model, byte_tokenizer, tasks=("mmlu", "hellaswag"))
    assert document.scores == {}
    first, second = skipped_lines(document.skipped, document.groups)
    assert first.startswith("mmlu: 57 of 57 tasks are skipped") and first.endswith("python -m evals fetch mmlu")
    assert second.startswith("hellaswag is skipped: the data set Rowan/hellaswag is not in the cache")


CANNOT_BE_BUILT = {
    "import no_such_package": "needs a package that is not installed: No module named 'no_such_package'",
    "raise ConnectionError('no route\\nto the host')": "hub cannot be reached (no route)",
}


@pytest.mark.parametrize("obstacle", CANNOT_BE_BUILT)
def test_a_task_that_cannot_be_built_here_is_skipped_and_the_rest_goes_on(
    model: Decoder, byte_tokenizer: Tokenizer, blimp: Path, tmp_path: Path, obstacle: str
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "loads.py").write_text(f"def data(**_):\n    {obstacle}\n")
    (own / "loads.yaml").write_text("task: loads\ncustom_dataset: !function loads.data\ntest_split: test\n")
    settings = {"tasks": ("loads", "blimp_transitive"), "include": (str(own),), "limit": 3}
    document, _ = run(model, byte_tokenizer, data={"blimp_transitive": str(blimp)}, **settings)
    assert set(document.scores) == {"blimp_transitive"}
    assert CANNOT_BE_BUILT[obstacle] in document.skipped["loads"]


def test_a_task_that_loads_by_itself_is_offline_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is not asked for what is in the cache; it is asked for the rest, if it answers."""
    seen = list[bool]()

    def load() -> str:
        seen.append(bool(datasets.config.HF_HUB_OFFLINE))
        if len(seen) < 2:
            raise ConnectionError
        return "rows"

    hub = tmp_path / "hub"
    hub.touch()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.as_uri())
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    assert (offline_first(load, "fetch it"), seen) == ("rows", [True, False])
    assert offline_first(load, "fetch it") == "rows" and seen[2:] == [True]


def test_a_name_that_nothing_has_brings_the_nearest_one() -> None:
    for name, meant in (("blmp", "blimp"), ("hellaswg", "hellaswag"), ("heldout_pair", "heldout_pairs")):
        with pytest.raises(UnknownTaskError, match=f"{name} \\(did you mean '{meant}'"):
            load_tasks(TasksSpec(tasks=(name,)), [])


def test_fetch_says_what_it_has_and_what_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text(json.dumps({"text": "a"}))
    Path("own.yaml").write_text(OWN.format(folder=tmp_path))
    assert main(["fetch", "own.yaml"]) == 0
    assert capsys.readouterr().out == "fetched: the data of 1 tasks\n"
    assert main(["fetch", "own", "hellaswag", "--include", "."]) == 1
    found = capsys.readouterr()
    assert found.out == "fetched: the data of 1 tasks\n" and "Rowan/hellaswag is not in the cache" in found.err
    assert main(["fetch", "no_such_task_at_all"]) == 2


def test_data_of_a_task_come_before_those_of_its_group(blimp: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"sentence_good": "a", "sentence_bad": "b"}))
    data = {"blimp_transitive": str(other), "blimp": str(blimp)}
    loaded = load_tasks(TasksSpec(tasks=("blimp",), data=data), [])
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
    assert "lacks a field" in found.skipped["wikitext"] and "page" in found.skipped["wikitext"]
    place.write_text("{")
    broken = run(model, byte_tokenizer, tasks=("wikitext",), data={"wikitext": str(place)}).document
    assert "rows.jsonl cannot be read" in broken.skipped["wikitext"]
    place.write_bytes(b"")
    empty = run(model, byte_tokenizer, tasks=("wikitext",), data={"wikitext": str(place)}).document
    assert "rows.jsonl has no rows" in empty.skipped["wikitext"]
    place.rename(tmp_path / "rows.txt")
    other = run(model, byte_tokenizer, tasks=("wikitext",), data={"wikitext": str(tmp_path / "rows.txt")}).document
    assert "rows.txt must end in one of .parquet" in other.skipped["wikitext"]
    with pytest.raises(UnknownTaskError, match="blimp"):
        load_tasks(TasksSpec(tasks=("heldout_pairs",), data={"blimp": str(place)}), [])


@pytest.mark.parametrize("kind", ["loglikelihood_rolling", "loglikelihood"])
def test_a_task_that_asks_about_a_list_is_skipped_by_name(
    model: Decoder, byte_tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """lm-eval reads what a template gives as Python, so that `[]` is a list. The other task is scored."""
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text(json.dumps({"text": []}))
    task = OWN.format(folder=tmp_path).replace("loglikelihood_rolling", kind)
    Path("own.yaml").write_text(task)
    Path("good.jsonl").write_text(ROWS)
    found = run(
        model, byte_tokenizer, tasks=("own", "wikitext"), include=(".",), data={"wikitext": "good.jsonl"}
    ).document
    assert "a list is where a text belongs" in found.skipped["own"], found.skipped
    assert list(found.scores) == ["wikitext"]


ROWS = '{"page": "a"}\n{"page": "b"}\n'
ANSWERS = 'output_type: loglikelihood_rolling\ndoc_to_text: ""\ndoc_to_target: "{{page}}"\n'
UNREADABLE = {
    "short.jsonl.gz": (gzip.compress(ROWS.encode())[:-12], "ended before"),
    "damaged.jsonl.gz": (gzip.compress(ROWS.encode())[:10] + b"\x07" * 20, "while decompressing"),
    "torn.jsonl": ((ROWS + '{"page":').encode(), "line 3"),
    "numbers.json": (b"[1, 2]", "expected JSON objects"),
    "mixed.jsonl": (b'{"page": "a"}\n{"page": 1}\n', "Expected bytes"),
    "long.jsonl": (b'{"page": %d}\n' % 10**30, "too large"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_files_that_cannot_be_read_are_one_line_each(name: str, tmp_path: Path) -> None:
    content, why = UNREADABLE[name]
    (tmp_path / name).write_bytes(content)
    loaded = load_tasks(TasksSpec(tasks=("wikitext",), data={"wikitext": str(tmp_path / name)}), [])
    assert re.search(f"{name} cannot be read: .*{why}", loaded.skipped["wikitext"]) and not loaded.tasks


TAGS = ("!!bool abc", "!!int ''", "!!float ''", "!!timestamp abc")


@pytest.mark.parametrize("beside", ["deep.yaml", "pipe.yaml", "including.yaml", "number.yaml", *TAGS])
def test_what_lies_beside_a_task_cannot_end_the_process(beside: str, tmp_path: Path) -> None:
    """libyaml's composer recurses: nested deeply enough, a file that nobody names overflowed the stack."""
    rows = f"dataset_kwargs: {{data_files: {{test: {tmp_path}/rows.jsonl}}}}"
    (tmp_path / "good.yaml").write_text(f"task: good\ndataset_path: json\n{rows}\ntest_split: test\n{ANSWERS}")
    (tmp_path / "rows.jsonl").write_text(ROWS)
    match beside:
        case "deep.yaml":
            (tmp_path / beside).write_text("[" * 100_000)
        case "pipe.yaml":
            os.mkfifo(tmp_path / beside)
        case "including.yaml":
            (tmp_path / "included").write_text('{"a":' * 50_000)
            (tmp_path / beside).write_text("include: included\ntask: other\n")
        case "number.yaml":
            (tmp_path / beside).write_text("group: 3\ntask: 4\n")
        case _:
            (tmp_path / "odd.yaml").write_text(f"task: other\nx: {beside}\n")
    loaded = load_tasks(TasksSpec(tasks=("good",), include=(str(tmp_path),)), [])
    assert list(loaded.tasks) == ["good"] and len(loaded.tasks["good"].eval_docs) == 2


def test_a_file_that_is_included_again_and_again_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    read = catalogue.read_regular

    def counted(path: Path) -> bytes:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(catalogue, "read_regular", counted)
    for number in range(30):
        (tmp_path / f"f{number}.yaml").write_text(f"include: [f{number + 1}.yaml, f{number + 1}.yaml]\n")
    (tmp_path / "f30.yaml").write_text("task: last\n")
    with pytest.raises(ValueError):
        catalogue.from_file(tmp_path / "f0.yaml")
    assert len(reads) == 31


@pytest.mark.parametrize(
    "rows", ["[" * 100_000, '{"page": ' + '{"a":' * 50_000 + "\n", None], ids=["list", "map", "pipe"]
)
def test_rows_that_would_end_or_stop_the_process_are_one_line(rows: str | None, tmp_path: Path) -> None:
    place = tmp_path / "rows.jsonl"
    rows_of = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: '{tmp_path}/r*.jsonl'}}}}"
    (tmp_path / "own.yaml").write_text(f"task: own\n{rows_of}\ntest_split: test\n{ANSWERS}")
    os.mkfifo(place) if rows is None else place.write_text(rows)
    loaded = load_tasks(TasksSpec(tasks=("own",), include=(str(tmp_path),)), [])
    assert not loaded.tasks and f"{place} cannot be read: " in loaded.skipped["own"]


def test_a_pipe_and_a_file_that_unpacks_to_too_much_are_one_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"page": ["a" * 1000] * 1000}), tmp_path / "rows.parquet", compression="zstd")
    monkeypatch.setattr(datafiles, "MOST_BYTES", (tmp_path / "rows.parquet").stat().st_size)
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress((ROWS * 1000).encode()))
    os.mkfifo(tmp_path / "test.jsonl")
    packed = ((tmp_path / name, "unpacked") for name in ("rows.jsonl.gz", "rows.parquet"))
    for place, why in (*packed, (tmp_path, "not a regular file")):
        loaded = load_tasks(TasksSpec(tasks=("wikitext",), data={"wikitext": str(place)}), [])
        assert re.search(f"cannot be read: .*{why}", loaded.skipped["wikitext"]) and not loaded.tasks


def test_files_of_a_split_that_do_not_go_together_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "test-0.jsonl").write_text('{"page": "a"}')
    (tmp_path / "test-1.jsonl").write_text('{"page": 1}')
    loaded = load_tasks(TasksSpec(tasks=("wikitext",), data={"wikitext": str(tmp_path)}), [])
    assert f"{tmp_path} cannot be read: " in loaded.skipped["wikitext"] and not loaded.tasks


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_of_json_end_where_json_says(end: str, tmp_path: Path) -> None:
    """Not at a line separator of Unicode's, which may stand in a string as it is."""
    pages = ["a\u2028b", "c\x85d\u2029", "e"]
    lines = [json.dumps({"page": page}, ensure_ascii=False) + end for page in pages]
    (tmp_path / "rows.jsonl").write_bytes((lines[0] + end + "".join(lines[1:])).encode())
    loaded = load_tasks(TasksSpec(tasks=("wikitext",), data={"wikitext": str(tmp_path / "rows.jsonl")}), [])
    assert [doc["page"] for doc in loaded.tasks["wikitext"].test_docs()] == pages


def test_what_is_no_data_does_not_tell_scores_apart(blimp: Path) -> None:
    spec = TasksSpec(tasks=("blimp",), data={"blimp": str(blimp)})
    before = spec.content()
    (blimp / ".cache").mkdir()
    (blimp / ".cache" / "wh_island.jsonl.gz.metadata").write_text("when it was downloaded")
    assert spec.content() == before
    (blimp / "other.jsonl").write_text(ROWS)
    assert spec.content() != before


def test_few_shot_items_stand_before_each_item_but_where_a_task_has_none(
    model: Decoder, byte_tokenizer: Tokenizer, blimp: Path, tmp_path: Path
) -> None:
    place = tmp_path / "arc.jsonl"
    choices = {"text": ["red", "blue"], "label": ["A", "B"]}
    rows = [{"question": f"q{i}", "choices": choices, "answerKey": "A"} for i in range(6)]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"arc_easy": str(place), "blimp_transitive": str(blimp)}
    document = run(model, byte_tokenizer, tasks=tuple(data), data=data, fewshot=2).document
    assert [row for row in document.sections["tasks"].rows if row["fewshot"]] == [{"task": "arc_easy", "fewshot": 2}]
    none = run(model, byte_tokenizer, tasks=tuple(data), data=data).document.sections["tasks"]
    assert not any(row["fewshot"] for row in none.rows)


def test_real_paradigms_and_real_text(
    model: Decoder, byte_tokenizer: Tokenizer, real_text: Path, tmp_path: Path
) -> None:
    """Official tasks over 33 of BLiMP's paradigms and WikiText-2's own pages."""
    text = (real_text / "wikitext-2" / "test.txt").read_text(encoding="utf-8")
    pages = [page for page in re.split(r"(?m)^(?= = [^=].* = $)", text) if page.strip()][:4]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps({"page": page}) + "\n" for page in pages))
    data = {"blimp": str(real_text / "blimp"), "wikitext": str(tmp_path)}
    document = run(model, byte_tokenizer, tasks=("blimp", "wikitext"), data=data, limit=2).document
    assert len(document.groups["blimp"].tasks) == 33
    assert document.scores["blimp"]["acc"].items == 66
    assert (document.scores["wikitext"]["bits_per_byte"].stderr or 0) > 0


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("null", "a row is null"),
        ("\ufeffnull", "a row is null"),
        ("null{}", "a row is null"),
        ('[null, {"a": 1}]', "a row is null"),
        ('{"a": 1}\nnull\n', "a row is null"),
        ("[" * 100_000, "recursion"),
        ('{"a": 1}\n2\n', "JSON parse error"),
    ],
)
def test_json_that_would_crash_its_reader_is_refused_by_name(tmp_path: Path, rows: str, said: str) -> None:
    """Arrow's reader takes null for a row, whose columns it then looks up at address zero."""
    file = tmp_path / "rows.jsonl"
    file.write_text(rows)
    kwargs = {"data_files": {"test": str(file)}, "cache_dir": str(tmp_path / "cache")}
    with pytest.raises(datafiles.TaskDataError, match=said):
        datafiles.from_hub({"dataset_path": "json", "dataset_kwargs": kwargs}, "ablate data")

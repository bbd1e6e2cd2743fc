"""Every command that README and docs show: it parses, and a test executes it or says why none does."""

from __future__ import annotations

import argparse
import importlib
import json
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ablate.cli import COMMANDS
from ablate.data.tokenizers.bytes import byte_tokenizer
from tests.guides.guide import ROOT, files_of

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SMOKE = "--scale smoke"
TINY = "--set tune=off --set seeds=2 --set data.validation_tokens=2048 --set 'budget={tokens: 7680}'"
QUICK = "--context 16 --batch 1 --rounds 1"
MODELS = "~/models/SmolLM2-135M", "~/models/mine"

EXECUTED: dict[str, list[tuple[str, str]]] = {
    "README.md": [
        ("ablate new my_question", ""),
        ("ablate plan my_question.yaml", SMOKE),
        ("ablate run my_question.yaml", SMOKE),
    ],
    "docs/first_study.md": [
        ("ablate new my_study", ""),
        ("ablate run my_study.yaml --scale smoke", ""),
        ("ablate plan my_study.yaml", ""),
        ("ablate run my_study.yaml", SMOKE),
    ],
    "docs/plugins.md": [
        ("ablate zoo maxnorm --plugin maxnorm.py", ""),
        ("ablate run study.yaml --plugin maxnorm.py", SMOKE),
        ("ablate schema study.schema.json --plugin maxnorm.py", ""),
    ],
    "docs/adding_a_feature.md": [
        ("ablate run study.yaml --plugin smear_gate.py", f"{SMOKE} --plugin maxnorm.py --set arms.max.smear_gate={{}}"),
    ],
    "docs/howto_nanogpt.md": [
        ("ablate plan shakespeare.yaml --scale cpu", ""),
        ("ablate run shakespeare.yaml --scale cpu", TINY),
    ],
    "docs/howto_block.md": [
        ("ablate zoo sine --plugin sine.py", ""),
        ("ablate plan sine.yaml --plugin sine.py", ""),
        ("ablate run sine.yaml --plugin sine.py --scale smoke", ""),
        ("ablate run sine.yaml --plugin sine.py", SMOKE),
    ],
    "docs/search.md": [
        ("ablate search studies/search_small_lm.yaml --promote 5", SMOKE),
        ("ablate run studies/search_small_lm_promoted.yaml", SMOKE),
        ("ablate report runs/searches/search_small_lm-cpu", ""),
    ],
    "docs/speed.md": [
        ("ablate plan studies/gqa_groups.yaml --at llama3-70b --context 131072 --device h200", SMOKE),
        ("ablate plan studies/gqa_groups.yaml --at llama3 --memory 80GB", SMOKE),
    ],
    "docs/checkpoints.md": [
        ("ablate run studies/uptraining.yaml", SMOKE),
        ("ablate export uptraining/mha mha", ""),
        ("ablate run uptrain.yaml", "--set tune=off --set seeds=2 --set train.context=64 --set budget.flops=1e9"),
        ("ablate import ~/models/SmolLM2-135M --study norm_placement", SMOKE),
        ("ablate import ~/models/mine --name mine --text '~/notes/*.md'", "--context 64"),
        ("ablate eval mine --tasks blimp hellaswag", ""),
        ("ablate bench ~/models/mine", QUICK),
        ("ablate report runs", ""),
        ("ablate export my_study/swiglu swiglu", ""),
    ],
}
"""Commands by page, in order, each with the arguments that make it quick."""
CHANGED = {
    "search_small_lm-cpu": "search_small_lm-smoke",
    "blimp hellaswag": "heldout_text",
    "my_study/swiglu": "uptraining/pooled",
}
"""Parts of commands that are replaced here: another scale, tasks that need no network, and a study that was run."""
ELSEWHERE = {
    r"docs/adding_a_data_source\.md: ablate (plan|run) mail.yaml": "tests/guides/test_adding_a_data_source.py",
    r"docs/adding_a_synthetic_task\.md: ablate (run reversal.yaml|eval RUN --at length=16,32)": (
        "tests/guides/test_adding_a_synthetic_task.py"
    ),
    r"docs/adding_an_optimizer\.md: ablate run .* --set train.optimizer=signum": (
        "tests/guides/test_adding_an_optimizer.py"
    ),
    r"docs/(plugins|howto_block)\.md: ablate zoo --check (maxnorm|sine)": "tests/ablate/wings/plugins/test_plugins.py",
    r"docs/adding_a_mixer\.md: ablate zoo --check tied": "tests/guides/test_adding_a_mixer.py",
    r"docs/comparisons\.md: ablate run studies/(screening|confirm)\.yaml": (
        "tests/ablate/wings/designs/test_promoting.py"
    ),
    r"docs/checkpoints\.md: lm-eval": "tests/zoo/hf/test_remote.py",
    r"docs/checkpoints_taken\.md: ablate (data|plan|run|import|eval) .*(c4|cats)\.yaml": (
        "tests/neighbours/test_walk.py"
    ),
    r"docs/evaluation\.md: ablate eval 3f2a": "tests/evals/harness/test_loading.py",
    r"docs/evaluation\.md: python -m evals (fetch|lm-eval)": "tests/evals/harness/test_lm_eval_model.py",
    r"docs/atlas\.md: ablate run studies/norm_placement\.yaml": "tests/ablate/wings/science/test_atlas.py",
    r"docs/atlas\.md: ablate (report|atlas)": "tests/ablate/wings/science/test_atlas.py",
    r"docs/atlas\.md: ablate claims": "tests/ablate/wings/science/test_handbook.py",
    r"docs/scales\.md: ablate (run|pack|merge) .*gpu-ladder": "tests/ablate/wings/ladders/test_baseline.py",
    r"docs/search\.md: ablate (plan|search|run|report) small": "tests/guides/test_search.py",
    r"docs/agents\.md: ablate judge": "tests/ablate/wings/campaign/test_judge.py",
    r"docs/sharing\.md: ablate (pack|merge)": "tests/ablate/wings/archive/test_packing.py",
    r"docs/sharing\.md: ablate compare": "tests/ablate/wings/compare/test_pooling.py",
    r"docs/sharing\.md: ablate register": "tests/ablate/wings/science/test_registering.py",
    r"docs/sharing\.md: ablate replicate": "tests/ablate/wings/science/test_replicating.py",
    r"docs/benchmarks/memory_cpu\.md: ablate (plan|run) memory\.yaml": "tests/ablate/wings/foretell/test_memory.py",
    r"docs/benchmarks/\w+\.md: ablate bench": "tests/ablate/wings/foretell/test_bench.py",
    r"docs/benchmarks/gpu\.md: docs/benchmarks/first_gpu\.sh": "tests/ablate/test_first_gpu.py",
    r"docs/benchmarks/gpu\.md: (docs/benchmarks/quarter_hour\.sh|ablate merge)": "tests/ablate/test_quarter_hour.py",
    r"docs/compare\.md: ablate compare": "tests/ablate/wings/compare/test_tour.py",
    r"docs/benchmarks/serving_cpu\.md: ablate run studies/cache_kinds\.yaml": "tests/ablate/test_studies.py",
}
"""Commands, as patterns of `page: command`, that the test of their subject executes on something small."""
NOT_EXECUTED = {
    r".*: (python3 -m venv|pip install)": "installs from an index: .ci/run does both",
    r".*: (ruff|pytest)": "the checks themselves",
    r"docs/adding_a_feature\.md: ablate zoo --check": "minutes of what the conformance suite does",
    r"docs/adding_a_feature\.md: python -m tests": "writes the file that tests/ablate/test_identity.py compares with",
    r"docs/benchmarks/.*: (mkdir |\(cd |(\w+=\S+ )*python |export )": "measures a machine for minutes",
    r".*: optuna-dashboard": "serves until it is stopped",
    r"docs/scales\.md: ablate (run|pack|merge) .*gpu-ladder": "days of a GPU; test_gpu_scales.py reads it",
}

OF_A_GUIDE = "--confidence"
"""The option of the evaluation that a guide adds."""


def shown() -> Iterator[tuple[str, str]]:
    """(page, command) of every shell block, without comments."""
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.sub(r"\s+#.*", "", line).strip()
                if command and not command.startswith("#"):
                    yield str(page.relative_to(ROOT)), re.sub(r"\s+", " ", command)


def test_every_command_is_executed_by_a_test_or_there_is_a_reason() -> None:
    found = list(shown())
    assert len(found) > 50
    ours = {(page, command) for page, commands in EXECUTED.items() for command, _ in commands}
    assert ours <= set(found), "no page shows these any more"
    others = [f"{page}: {command}" for page, command in found if (page, command) not in ours]
    patterns = [*ELSEWHERE, *NOT_EXECUTED]
    assert [each for each in others if not any(re.match(pattern, each) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(re.match(pattern, each) for each in others)] == []
    assert all((ROOT / path).is_file() for path in ELSEWHERE.values())


def parser_of(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(name)
    parser.add_argument("--plugin")
    importlib.import_module(COMMANDS[name]).configure(parser)
    return parser


def test_every_command_and_every_option_in_passing_is_understood() -> None:
    parsers = {name: parser_of(name) for name in COMMANDS}
    for _, command in shown():
        if command.startswith("ablate "):
            _, name, *words = shlex.split(command)
            parsers[name].parse_args(words)
    wrong = [
        f"{page.name}: {passage}"
        for page in PAGES
        for passage, name in re.findall(r"`(ablate ([a-z]+)\b[^`]*)`", page.read_text(encoding="utf-8"))
        if set(re.findall(r"(?<!\S)--[a-z-]+", passage)) - {*parsers[name]._option_string_actions, OF_A_GUIDE}
    ]
    assert wrong == []


def test_the_page_of_commands_lists_them_all_with_options_that_they_have() -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `ablate ([a-z]+)(.*)", page, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(COMMANDS)
    options = {name: parser_of(name)._option_string_actions for name in COMMANDS}
    wrong = [
        f"{name} {each}"
        for name, row in rows
        for each in re.findall(r"(?<=`)--?[a-z-]+", row)
        if each not in options[name]
    ]
    assert wrong == []
    (said,) = re.findall(r"Every command except ([^.]*?)\s+takes\s+`--json`", page)
    assert re.findall("`([a-z]+)`", said) == [name for name in COMMANDS if "--json" not in options[name]]


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """Where a reader of every page works: the studies that ship, notes, models and a plug-in."""
    shutil.copytree(ROOT / "studies", tmp_path / "studies", ignore=shutil.ignore_patterns("*.md"))
    (tmp_path / "notes").mkdir()
    # Text that nobody edits: which documents are held out follows from what they say.
    with lzma.open(ROOT / "ablate/data/prose/documents.jsonl.xz", "rt", encoding="utf-8") as lines:
        text = "\n".join(json.loads(line)["text"] for line in islice(lines, 100))[:64_000]
    for number in range(40):
        (tmp_path / f"notes/{number}.md").write_text(text[number * 1600 : (number + 1) * 1600], encoding="utf-8")
    for model in MODELS:
        folder = tmp_path / model.removeprefix("~/")
        torch.manual_seed(0)
        shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        LlamaForCausalLM(LlamaConfig(vocab_size=257, **shape)).save_pretrained(folder)
        byte_tokenizer().save(str(folder / "tokenizer.json"))
    (tmp_path / "input.txt").write_text(text, encoding="utf-8")
    for page in ("howto_block.md", "howto_nanogpt.md", "adding_a_feature.md"):
        for path, written in files_of(page).items():
            if "/" not in path:  # not those of the project
                (tmp_path / path).write_text(written, encoding="utf-8")
    guide = (ROOT / "docs/adding_a_variant.md").read_text(encoding="utf-8")
    (norm,) = re.findall(r"Write `zoo/norms/maxnorm.py`:\n\n```python\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "maxnorm.py").write_text(norm, encoding="utf-8")
    (uptrain, *_) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/checkpoints.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "uptrain.yaml").write_text(uptrain, encoding="utf-8")
    study = (ROOT / "ablate/wings/prepare/start.yaml").read_text(encoding="utf-8")
    (tmp_path / "study.yaml").write_text(
        re.sub(r"swiglu: \{.*\}\}", "max: {block.norm: maxnorm}", study), encoding="utf-8"
    )
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", EXECUTED)
def test_the_commands_of_a_page_run(page: str, reader: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(reader), "HF_HUB_OFFLINE": "1"}
    for command, arguments in EXECUTED[page]:
        for ours, here in CHANGED.items():
            command = command.replace(ours, here)  # noqa: PLW2901 (what is run)
        words = [str(reader / word[2:]) if word in MODELS else word for word in shlex.split(f"{command} {arguments}")]
        done = subprocess.run(
            [sys.executable, "-P", "-m", *words],
            cwd=reader,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"

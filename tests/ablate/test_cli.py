"""The command line itself: start-up, help, versions, mistakes; and the zoo's catalogue."""

import json
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

import zoo
from ablate.cli import COMMANDS, main
from ablate.commands import FOLDED, grouped, print_prose, print_table, unfolded
from ablate.wings.catalogue.catalogue import whole_catalogue
from ablate.wings.catalogue.commands.zoo import FIRST
from ablate.wings.prepare.schema import study_schema
from zoo.block_spec import BlockSpec
from zoo.mixers.attention import Attention
from zoo.presets import names

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "pydantic", "polars", "rich", "plotly", "numpy", "ruamel", "lm_eval", "zoo", "reports"}


def test_the_catalogue_that_ships_is_that_of_the_code() -> None:
    shipped = json.loads((ROOT / "ablate/wings/catalogue/catalogue.json").read_text(encoding="utf-8"))
    found = json.loads(json.dumps(whole_catalogue()))
    assert shipped == found, "run python -m ablate.wings.catalogue.catalogue > ablate/wings/catalogue/catalogue.json"


def test_help_loads_nothing_heavy_and_names_every_command():
    code = (
        "import sys; from ablate.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert loaded & HEAVY == set()
    assert all((f"    {command} " in done.stdout) == (command not in FOLDED) for command in COMMANDS)


def test_the_help_has_five_groups_and_nothing_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = [name for names in grouped().values() for name in names]
    assert len(grouped()) == 5 and len(listed) <= 22
    assert sorted([*listed, *FOLDED]) == sorted(COMMANDS)
    for name, (command, option) in FOLDED.items():
        assert command in listed
        assert unfolded([command, "x", option, "--store", "s"]) == [name, "x", "--store", "s"]
        with pytest.raises(SystemExit) as end:
            main([command, "--help"])
        assert end.value.code == 0 and f"ablate {command} {option} " in capsys.readouterr().out
    for words in (["status"], ["list", "--running"]):
        assert main([*words, "--store", str(tmp_path / "none")]) == 0
        assert capsys.readouterr().out == f"{tmp_path}/none/ has no studies yet.\n"


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version_is_that_of_the_project(flag, capsys):
    with pytest.raises(SystemExit) as end:
        main([flag])
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert end.value.code == 0
    assert capsys.readouterr().out == f"ablate {declared}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu"], "unknown command 'rnu' (did you mean 'run'?)"),
        (["xyzzy"], "unknown command 'xyzzy': one of run, plan, report"),
        (["run"], "STUDY"),
        (["run", "x.yaml", "--workers", "0"], "'0' is not a whole number from 1"),
        (["run", "x.yaml", "--checkpoint-seconds", "nan"], "'nan' is not a time in seconds"),
        (["search", "x.yaml", "--checkpoint-seconds", "soon"], "'soon' is not a time in seconds"),
        (["run", "x.yaml", "--sclae", "cpu"], "ablate run: unknown argument --sclae (did you mean '--scale'?)"),
        (["--bogus"], "COMMAND"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_the_catalogue_has_every_variant_with_its_paper(capsys):
    assert main(["zoo", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"variants", "presets"}
    rope = next(entry for entry in document["variants"]["positions"] if entry["name"] == "rope")
    assert rope["paper"] == "arXiv:2104.09864"
    files = {path.stem for path in (ROOT / "zoo" / "positions").glob("[!_]*.py")}
    assert {entry["name"] for entry in document["variants"]["positions"]} == files


def test_presets_say_what_is_in_them(capsys):
    main(["zoo", "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["presets"]}
    llama3 = rows["llama3"]
    assert (llama3["norm"], llama3["placement"], llama3["position"]) == ("rmsnorm", "pre", "rope")
    assert llama3["parameters"] == 8_030_261_248  # as on the model's card
    assert llama3["topology"] == "serial"
    assert "kv_heads=8" in llama3["tricks"]
    assert set(llama3) == {
        "name", "year", "norm", "placement", "topology", "position", "activation", "attention", "experts", "tricks",
        "parameters", "published_parameters", "active_parameters", "published_active_parameters", "source",
        "assumed", "note", "parts",
    }  # fmt: skip
    mixtral = rows["mixtral_8x7b"]
    assert mixtral["active_parameters"] == pytest.approx(mixtral["published_active_parameters"], rel=0.01)
    command_a = rows["command_a"]
    assert (command_a["topology"], command_a["position"]) == ("parallel", "rope, nope")
    assert "window=4096 in 48 of 64 layers" in command_a["tricks"]


def test_presets_name_attention_and_experts_also_where_they_are_defaults(capsys):
    main(["zoo", "--json"])
    rows = {row["name"]: (row["attention"], row["experts"]) for row in json.loads(capsys.readouterr().out)["presets"]}
    assert rows["gpt3"] == ("MHA", "")
    assert rows["palm"] == ("MQA", "")  # arXiv:2204.02311, section 2
    assert rows["mixtral_8x7b"] == ("GQA (8)", "8, top 2")  # arXiv:2401.04088, table 1: the variant's own defaults
    assert rows["deepseek_v2"] == ("MLA", "160, top 6, 2 shared")  # arXiv:2405.04434, section 3.1.2
    assert rows["llama4"][1] == "16, top 1, 1 shared"
    assert rows["jamba"] == ("mamba ×28, GQA (8) ×4", "16, top 2")  # arXiv:2403.19887, section 3.1
    assert rows["kimi_linear"][0] == "kda ×20, MLA ×7"  # arXiv:2510.26692: three to one
    assert rows["gpt4"] == (None, None)


def test_a_preset_that_cannot_be_built_is_listed_with_what_is_claimed_of_it(capsys):
    main(["zoo", "--json"])
    gpt4 = next(row for row in json.loads(capsys.readouterr().out)["presets"] if row["name"] == "gpt4")
    assert (gpt4["activation"], gpt4["norm"], gpt4["parameters"]) == ("swiglu", None, None)
    assert main(["zoo", "gpt4", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["year"], shown["source"], shown["buildable"]) == (2023, "arXiv:2303.08774", False)
    assert (shown["assumed"], shown["model"]) == (["block.ffn"], {"block": {"ffn": "swiglu"}})
    assert "unconfirmed claim" in shown["note"]
    assert main(["zoo", "gpt4"]) == 0
    assert "source: arXiv:2303.08774" in capsys.readouterr().out
    assert main(["zoo", "gpt4", "--small"]) == 2
    assert "gpt4' cannot be built, at any size" in capsys.readouterr().err


def test_a_preset_and_a_part_are_shown_with_what_they_cost(capsys):
    assert main(["zoo", "llama3", "--json"]) == 0
    costs = json.loads(capsys.readouterr().out)["costs"]
    # Llama 3 8B: 8,030,261,248 parameters, of which the token table is looked up; keys and values of 8 heads of 128 in
    # 32 layers; each query meets half of 4,096 keys (2 products, 2 FLOPs), and one more.
    assert costs["parameters"] == 8_030_261_248
    matrices = 8_030_261_248 - 128_256 * 4096 - (2 * 32 + 1) * 4096
    assert costs["flops_per_token"] == 2 * matrices + 32 * 2 * 2 * 4096 * (4096 + 1) / 2
    assert costs["cache_bytes"] == 2 * 2 * 32 * 8 * 128 * 4096
    assert main(["zoo", "alibi"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("29.4M parameters; at a context of 4,096 tokens 92.") and "67.1MB of cache" in line
    assert main(["zoo", "prose", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["costs"] is None


def test_the_zoo_is_a_line_for_each_variant_with_the_mixers_first(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["zoo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["zoo", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["variants"]
    attention = next(each["doc"] for each in listed["mixers"] if each["name"] == "attention")
    assert lines[:2] == ["mixers", f"  attention         {attention}"[:79] + "…"]
    assert all(len(line) <= 80 for line in lines)
    assert [line for line in lines if line in listed] == [*FIRST, *(axis for axis in listed if axis not in FIRST)]
    assert len(lines) == sum(2 + len(of) for of in listed.values()) + 4


@pytest.mark.parametrize(("form", "begins"), [("markdown", "# Published models"), ("csv", "model,year,norm")])
def test_the_presets_are_a_document(form, begins, capsys):
    assert main(["zoo", "presets", "--format", form]) == 0
    written = capsys.readouterr().out
    assert written.startswith(begins)
    assert all(name in written for name in names())
    assert main(["zoo", "rope", "--format", form]) == 2
    assert "--format needs `ablate zoo presets`" in capsys.readouterr().err


def test_the_table_marks_what_is_assumed(capsys):
    main(["zoo", "presets"])
    lines = capsys.readouterr().out.splitlines()
    gpt4 = next(line.split() for line in lines if "gpt4" in line)
    assert gpt4 == ["gpt4", "2023", "swiglu*", "–", "–", "arXiv:2303.08774"]
    llama3 = next(line.split() for line in lines if "llama3" in line and "2024" in line)
    assert llama3[1:9] == ["2024", "rmsnorm", "pre", "serial", "rope", "GQA", "(8)", "swiglu"]


def test_a_preset_is_shown_small(capsys):
    assert main(["zoo", "palm", "--small", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["model"]["d_model"] == 64
    assert document["parameters"] < 1e6


def test_one_preset_is_shown_in_full(capsys):
    assert main(["zoo", "llama3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert zoo.parse(document["model"]).digest == zoo.load("llama3").digest


def test_one_variant_is_shown_with_its_settings(capsys):
    assert main(["zoo", "rope"]) == 0
    out = capsys.readouterr().out
    assert "Su et al. 2021" in out
    assert re.search(r"base +10000\b", out)
    assert re.search(r"scaling +null +Scaling of the frequencies", out)


def test_the_settings_of_attention_stand_under_headings_each_once(capsys):
    assert main(["zoo", "attention"]) == 0
    table = capsys.readouterr().out.partition("evaluations:")[0]
    listed = re.findall(r"^   (\w+)  ", table, re.MULTILINE)
    assert sorted(listed) == sorted(Attention.model_fields.keys() - {"kind"})
    headings = re.findall(r"^ ([a-z ]+):  ", table, re.MULTILINE)
    assert headings[0] == "heads" and "its own" not in headings

    main(["zoo", "cosine"])  # has the headings of all multi-head attention, and two settings of its own
    assert re.search(r"^ its own:.*\n   initial_scale .*\n   max_scale ", capsys.readouterr().out, re.MULTILINE)


def test_settings_of_model_and_block_are_shown_with_what_they_do(capsys):
    assert main(["zoo", "model"]) == main(["zoo", "block"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*zoo.ModelSpec.model_fields, *BlockSpec.model_fields))
    assert re.search(r"token_types +null +Number of token types, each", out)
    assert re.search(r"mixer +attention", out)


@pytest.mark.parametrize(
    ("name", "words", "setting"),
    [
        ("mtp", "Module k = 1 … depth predicts", r"depth +1\b"),
        ("cross", "queries from the decoder's stream", r"kv_heads +null"),
        ("canon", "arXiv:2512.17351", r"width +4\b"),
        ("span_corruption", "arXiv:1910.10683", r"rate +0\.15\b"),
        ("beam_search", "likeliest open continuations", r"early_stopping +no\b"),
        ("lookahead", "arXiv:2412.19437", r"top_p +1\b"),
    ],
)
def test_parts_objectives_and_ways_to_decode_are_listed_and_shown(capsys, name, words, setting):
    assert main(["zoo", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["variants"]
    assert sum(name == entry["name"] for of in listed.values() for entry in of) == 1
    parts = {"canon", "cross", "encoder", "init", "laurel", "mtp", "sharing", "value_embeddings"}
    parts |= {"altup", "chunks", "depth_routing", "gated_norm", "per_layer_embeddings"}
    assert {entry["name"] for entry in listed["parts"]} == parts
    assert main(["zoo", name]) == 0
    out = capsys.readouterr().out
    assert words in " ".join(out.split())
    assert re.search(setting, out)


def test_no_trick_is_in_more_layers_than_there_are(capsys):
    main(["zoo", "--json"])
    presets = {row["name"]: row for row in json.loads(capsys.readouterr().out)["presets"]}
    counts = [re.search(r"in (\d+) of (\d+) layers", trick) for row in presets.values() for trick in row["tricks"]]
    assert any(counts)
    assert all(int(count[1]) < int(count[2]) for count in counts if count)
    assert "encoder(n_layers=24)" in presets["t5"]["tricks"]


def test_a_table_too_wide_for_the_terminal_is_turned_on_its_side(capsys, monkeypatch):
    rows = [("arm", *(f"column {i}" for i in range(9))), ("pre", *"123456789"), ("post", *"abcdefghi")]
    monkeypatch.setattr("ablate.commands.PIPE_WIDTH", 60)
    print_table(rows)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["arm", "pre", "post"] for line in lines)
    assert any(line.split() == ["column", "8", "9", "i"] for line in lines)
    assert max(map(len, lines)) <= 60


def test_the_schema_of_studies_is_printed_or_written(tmp_path, capsys):
    assert main(["schema", "-"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert main(["schema", str(tmp_path / "study.schema.json")]) == 0
    assert json.loads((tmp_path / "study.schema.json").read_text(encoding="utf-8")) == printed == study_schema()


def test_a_reader_that_has_seen_enough_gets_no_message():
    """The status is that of SIGPIPE, as for any tool."""
    command = f"{sys.executable} -m ablate schema | head -c 100; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, len(done.stdout), done.stderr) == (141, 100, "")


def test_data_is_prepared_before_a_run_and_read_too_often_it_is_said(study, tmp_path, capsys):
    """20 steps of 128 tokens read about 12 kB a fifth of a time; 2,000 read it some twenty times."""
    store = ["--store", str(tmp_path / "runs")]
    assert main(["data", str(study), *store, "--json"]) == 0
    (corpus,) = json.loads(capsys.readouterr().out)
    assert (tmp_path / "runs" / "data" / corpus["digest"] / "meta.json").exists()
    assert (corpus["source"], corpus["vocabulary"]) == ("files", 257)
    splits = [corpus[f"{split}_tokens"] for split in ("train", "tuning", "judging", "test")]
    assert sum(splits) == corpus["bytes"] + corpus["documents"] + len(splits)  # an end after each, and at each start
    assert len(corpus["begins"]) == 200
    assert corpus["files"].endswith(" text")
    assert main(["plan", str(study), *store]) == 0
    assert "repeated:" not in capsys.readouterr().out
    assert main(["plan", str(study), *store, "--set", "budget.tokens=256000"]) == 0
    assert f"repeated: runs read {corpus['train_tokens']:,} training tokens up to" in capsys.readouterr().out


def test_the_name_of_a_setting_shows_the_parts_that_have_it(capsys):
    assert main(["zoo", "kv_heads", "--json"]) == 0
    found = {(row["axis"], row["name"]): row["default"] for row in json.loads(capsys.readouterr().out)}
    assert found[("mixers", "attention")] is None
    assert ("mixers", "mamba2") not in found  # which has heads, and none of keys and values
    assert main(["zoo", "kv_haeds"]) == 2
    assert "did you mean 'kv_heads'?" in capsys.readouterr().err


def test_prose_is_broken_between_words_on_a_terminal_alone(capsys, monkeypatch):
    line = "swiglu (−0.006 ± 0.039 nats) is inconclusive against relu, see studies/LOG.md"
    print_prose([line])
    assert capsys.readouterr().out == f"{line}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    print_prose([line])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) > 1
    assert all(len(each) <= 40 for each in shown)
    assert " ".join(shown) == line


def test_warnings_of_ours_are_lines_for_people(monkeypatch):
    said = []

    def run(_options):
        kinds = (zoo.ConversionWarning, DeprecationWarning)
        said.extend(warnings.formatwarning("keys are left out", kind, "code.py", 7) for kind in kinds)
        return 0

    monkeypatch.setattr("ablate.wings.catalogue.commands.zoo.run", run)
    main(["zoo"])
    assert said[0] == "ablate: keys are left out\n"
    assert "code.py:7" in said[1]

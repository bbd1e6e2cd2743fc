"""Tables of losses as people have them: each is read as it was meant, or refused with its row and the remedy."""

from __future__ import annotations

import gzip
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import ablate
from ablate.cli import main

LOSSES = {("pre", 0): 4.15, ("pre", 1): 4.13, ("pre", 2): 4.14, ("post", 0): 4.29, ("post", 1): 4.27, ("post", 2): 4.3}
ROWS = [(arm, seed, loss) for (arm, seed), loss in LOSSES.items()]
FRAME = pl.DataFrame(ROWS, schema=["arm", "seed", "loss"], orient="row")
EXPECTED = ablate.compare(FRAME).document()
CSV = "arm,seed,loss\n" + "".join(f"{arm},{seed},{loss}\n" for arm, seed, loss in ROWS)
RECORDS = FRAME.to_dicts()


def saved(folder: Path, text: str | bytes, name: str = "losses.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def error_of(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What the command says of a file that it refuses, without the name of the file."""
    capsys.readouterr()
    assert main(["compare", str(path), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix(f"ablate: {path}: ")


WRITTEN: dict[str, str | bytes] = {
    "losses.tsv": CSV.replace(",", "\t"),
    "losses.csv.gz": gzip.compress(CSV.encode(), mtime=0),
    "losses.json": json.dumps(RECORDS),
    "losses.jsonl": "\n\n".join(map(json.dumps, RECORDS)),
    "losses.jsonl.gz": gzip.compress("\n".join(map(json.dumps, RECORDS)).encode()),
    "marked.csv": b"\xef\xbb\xbf" + CSV.encode(),
    "spaces.csv": CSV.replace("pre,", " pre ,").replace("post,1,", "post ,1 , "),
    "commas.csv": CSV.replace("\n", ",\n"),
    "more commas.csv": CSV.replace("\n", ",,\n", 3),
    "blank lines.csv": CSV.replace("\n", "\n\n, ,\n"),
    "quotes.csv": CSV.replace("pre", ' "pre"'),
    "returns.csv": CSV.replace("\n", "\r\n"),
    "semicolons.csv": CSV.replace(",", ";").replace(".", ","),
    "points.csv": CSV.replace(",", ";"),
    "tabs.csv": CSV.replace(",", "\t"),
    "commas.tsv": CSV,
    "comments.csv": f"# from the cluster; see notes\n\n  # two lines\n{CSV}",
    "windows.csv": CSV.encode("utf-16"),
    "notes.csv": CSV.replace("\n", ",0\n").replace("loss,0", "loss,note").replace("4.3,0", "4.3,crashed"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_is_read_as_it_was_meant(name: str, tmp_path: Path) -> None:
    assert ablate.compare(saved(tmp_path, WRITTEN[name], name)).document() == EXPECTED


def test_standard_input_is_csv(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CSV.encode())))
    assert main(["compare", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == EXPECTED


def test_types_are_those_of_the_whole_column(tmp_path: Path) -> None:
    """A number with a point, a word for a seed and words elsewhere come late, in a long table."""
    rows = [("a" if number % 2 else "b", number // 2, number % 7, number) for number in range(300)]
    text = "arm,seed,loss,note\n" + "".join(f"{arm},{seed},{loss},{note}\n" for arm, seed, loss, note in rows)
    late = text + "a,late,3.1,crashed\nb,late,3.2,\n"
    found = ablate.compare(saved(tmp_path, late))
    assert found.arms["seeds"].to_list() == [151, 151]


FAILED = ["NaN", "nan", "NA", "N/A", "null", "None", "", " ", "inf", "Infinity"]


@pytest.mark.parametrize("cell", FAILED)
def test_spellings_of_a_failed_run(cell: str, tmp_path: Path) -> None:
    found = ablate.compare(saved(tmp_path, CSV.replace("post,2,4.3", f"post,2,{cell}")))
    assert found.arms["failed"].to_list() == [0, 1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "NaN"])
@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_json_as_python_writes_it_has_failed_runs(value: Any, ending: str, tmp_path: Path) -> None:
    records = [*RECORDS[:-1], {**RECORDS[-1], "loss": value}]
    text = json.dumps(records) if ending == "json" else "\n".join(map(json.dumps, records))
    assert ablate.compare(saved(tmp_path, text, f"losses.{ending}")).arms["failed"].to_list() == [0, 1]


def test_arms_may_be_called_as_empty_cells_are(tmp_path: Path) -> None:
    assert ablate.compare(saved(tmp_path, CSV.replace("pre", "none"))).arms["arm"].to_list() == ["none", "post"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            CSV.replace("post,0,4.29", "post,0,diverged"),
            "row 5: loss: 'diverged' is not a number: leave the cell empty for",
        ),
        (CSV.replace("loss", "loss\n").replace("4.29", "x"), "row 6: loss: 'x' is not a number"),
        ("\n\n" + CSV.replace("4.29", "x"), "row 7: loss: 'x' is not a number"),
        (CSV.replace("pre", '"two\nlines"', 1).replace("4.29", "x"), "row 6: loss: 'x' is not a number"),
        (CSV.replace("4.29", "4_29"), "row 5: loss: '4_29' is not a number"),
        (CSV.replace("4.29", '"4,29"'), "row 5: loss: '4,29' is not a number: write decimals with a point"),
        (CSV.replace("4.29", "4,29"), "row 5: 4 cells, but the header has 3: write decimals with a point, and quote"),
        (CSV.replace(",4.29", ""), "row 5: 2 cells, but the header has 3: write a comma for each empty cell"),
        (CSV.replace("post,0", "# more\npost,0"), "row 5: is a comment: delete the line"),
        ("# mine\n" + CSV.replace("4.29", "x"), "row 6: loss: 'x' is not a number"),
        ("#" + CSV, "no column `arm`; columns: pre, 0, 4.15 (a first line that begins with # counts as a comment)"),
        (CSV.replace(",", ";").replace("4.29", "4;29"), "row 5: 4 cells, but the header has 3: write decimals with a"),
        (
            CSV.replace("4.29", '"1,304.29"'),
            "row 5: loss: '1,304.29' is not a number: write decimals with a point, and",
        ),
        (CSV.replace("post,0", "post,"), "row 5: seed: is empty: every run needs an arm and a seed"),
        (CSV.replace("post,0", " ,0"), "row 5: arm: is empty"),
        (CSV.replace("post,0", '"post,0'), "row 5: a quote is not closed"),
        (CSV.replace("loss", "loss,loss").replace("\n", ",\n"), "columns 'loss' and 'loss': keep one of them"),
        (CSV.encode().replace(b"post,0", b"p\xf6st,0"), "row 5 is not UTF-8: save the file as UTF-8"),
        ("", "is empty: expected a header with the columns arm, seed and loss"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_as_editors_count(
    text: str | bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert error_of(saved(tmp_path, text), capsys).startswith(says)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.jsonl", '{"arm": "a"}\n\n{"arm": ', "row 3: is not JSON: Expecting value"),
        ("x.jsonl", "[1]", "row 1: expected a record such as"),
        ("x.jsonl", "[" * 100_000, "row 1: cannot be read"),
        ("x.json", '{"arm": "a"}\n{"arm": "b"}', "is not JSON: Extra data; a file with one record per line must end"),
        ("x.json", '{"arm": {"0": "a"}}', "expected a list of records, as `frame.to_json(path, orient='records')`"),
        ("x.csv.gz", CSV, "cannot be read: Not a gzipped file"),
        ("x.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:-9], "cannot be read: Compressed file ended"),
        ("x.xlsx", CSV, "expected a file that ends in .csv, .tsv, .jsonl, .ndjson, .json (or one of these with .gz)"),
    ],
)
def test_other_files_that_cannot_be_read(
    name: str, text: str | bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert error_of(saved(tmp_path, text, name), capsys).startswith(says)


PANDAS = FRAME.to_pandas()


@pytest.mark.parametrize(
    "given",
    [
        PANDAS.set_index(["arm", "seed"]),
        PANDAS.set_index("seed"),
        PANDAS.assign(seed=PANDAS["seed"].astype(float)),
        PANDAS.assign(seed=PANDAS["seed"].astype("Int64"), loss=PANDAS["loss"].astype("Float64")),
        PANDAS.assign(arm=PANDAS["arm"].astype("category")),
        PANDAS.assign(loss=PANDAS["loss"].astype(object)),
        PANDAS.assign(loss=PANDAS["loss"].astype(str)),
        PANDAS.assign(seed=pd.Series([0, "1", 2, 0, 1, "2"], dtype=object)),
        pd.concat(
            [PANDAS, PANDAS[["loss"]].rename(columns={"loss": "x"}), PANDAS[["loss"]].rename(columns={"loss": "x"})],
            axis=1,
        ),
        FRAME.lazy(),
    ],
)
def test_frames_are_read_as_they_were_meant(given: Any) -> None:
    assert ablate.compare(given).document() == EXPECTED


def mixed(*values: object) -> pd.DataFrame:
    """The frame with other cells at the end of its losses."""
    return PANDAS.assign(loss=pd.Series([*PANDAS["loss"][: -len(values)], *values], dtype=object))


@pytest.mark.parametrize("value", ["nan", None, pd.NA, math.nan])
def test_a_column_of_mixed_cells_may_have_failed_runs(value: object) -> None:
    assert ablate.compare(mixed(value)).arms["failed"].to_list() == [0, 1]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (mixed("diverged"), "row 6: loss: 'diverged' is not a number: leave the cell empty for a run that failed"),
        (mixed([4.3]), "row 6: loss: [4.3] is not a number"),
        (PANDAS.assign(loss=PANDAS["loss"] + 1j), "row 1: loss: (4.15+1j) is not a number"),
        (PANDAS.assign(arm=[["pre"]] * 6), "row 1: arm: expected a number or a word, not ['pre']"),
        (pd.concat([PANDAS, PANDAS[["loss"]]], axis=1), "columns 'loss' and 'loss': keep one of them"),
        (PANDAS["loss"], "expected a frame or a path, not Series: call its `reset_index()`, or `to_frame()`"),
        (RECORDS, "expected a frame or a path, not list"),
        (pl.scan_csv("nowhere.csv"), "the lazy frame cannot be collected"),
        (PANDAS.iloc[:0], "has no rows below its header"),
    ],
)
def test_frames_that_cannot_be_read_are_one_line(given: Any, says: str) -> None:
    with pytest.raises(ablate.ArgumentError) as error:
        ablate.compare(given)
    assert str(error.value).startswith(f"losses: {says}") and "\n" not in str(error.value)


HISTORY = [
    {"arm": arm, "seed": seed, "_step": step, "loss": loss + (400 - step) / 100}
    for (arm, seed), loss in LOSSES.items()
    for step in (400, 0, 200)
]


def test_the_last_step_of_a_history_counts(tmp_path: Path) -> None:
    """Whatever the order of its rows; those that log something else at the end have no loss."""
    rows: list[dict[str, Any]] = [*HISTORY, *({**row, "_step": 401, "loss": None} for row in HISTORY[::3])]
    found = ablate.compare(pl.DataFrame(rows))
    assert found.contrasts.equals(ablate.compare(FRAME).contrasts)
    assert found.notes[0] == "6 runs have several rows: the last one with a loss, by `_step`, counts"
    rows[-1]["loss"] = math.nan
    path = saved(tmp_path, "\n".join(map(json.dumps, rows)), "losses.jsonl")
    assert ablate.compare(path).arms["failed"].to_list() == [0, 1]


def test_a_history_that_ends_early_is_left_out() -> None:
    rows = [row for row in HISTORY if (row["arm"], row["seed"], row["_step"]) != ("post", 2, 400)]
    found = ablate.compare(pd.DataFrame(rows))
    assert "seed 2 of post is left out: its loss is of step 200 of 400" in found.notes
    assert found.arms["seeds"].to_list() == [3, 2]


def tuned(rows: list[dict[str, object]]) -> pl.DataFrame:
    """The table with tuning runs of both arms."""
    judging = [{**row, "rate": 0.1, "split": ""} for row in RECORDS]
    return pl.DataFrame([*judging, *rows])


TUNING: list[dict[str, object]] = [
    {"arm": arm, "seed": 9, "loss": 4.0 + rate, "rate": rate, "split": "tuning"}
    for arm in ("pre", "post")
    for rate in (0.05, 0.1, 0.2)
]


def test_rows_of_one_run_with_nothing_to_choose_by_are_refused() -> None:
    with pytest.raises(ablate.ArgumentError, match="row 7 repeats seed 1 of pre from row 2: keep one row per run, "):
        ablate.compare(pl.DataFrame([*RECORDS, RECORDS[1]]))
    with pytest.raises(ablate.ArgumentError, match="row 13 repeats seed 9 of pre from row 8"):
        ablate.compare(tuned([*TUNING, TUNING[1]]))
    with pytest.raises(ablate.ArgumentError, match="row 19 repeats seed 0 of pre from row 1"):
        ablate.compare(pl.DataFrame([*HISTORY, HISTORY[0]]))


def test_tuning_runs_may_be_histories() -> None:
    plain = ablate.compare(tuned(TUNING))
    longer = [{**row, "step": step, "loss": (row["loss"] if step else 9.0)} for row in TUNING for step in (0, 50)]
    found = ablate.compare(
        pl.concat(
            [
                tuned([]).with_columns(step=pl.lit(400)),
                pl.DataFrame(longer).select(*tuned([]).columns, pl.col("step").cast(pl.Int32)),
            ]
        )
    )
    assert found.contrasts.equals(plain.contrasts)
    assert found.notes == ("6 runs have several rows: the last one with a loss, by `step`, counts", *plain.notes)


@pytest.mark.parametrize("cell", ["0", "-3", "inf"])
@pytest.mark.parametrize("name", ["cost", "rate"])
def test_costs_and_rates_are_above_zero(
    name: str, cell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CSV.replace("\n", ",1\n").replace("loss,1", f"loss,{name}").replace("4.29,1", f"4.29,{cell}")
    said = f"row 5: {name}: expected a finite number above 0, not {cell}: leave the cell empty if it is unknown"
    assert error_of(saved(tmp_path, text), capsys) == said


@pytest.mark.parametrize("cell", ["", "nan", "N/A"])
def test_a_cost_that_is_not_known_leaves_the_others(cell: str, tmp_path: Path) -> None:
    text = (
        CSV.replace("\npost", "\n post")
        .replace("\n", ",1\n")
        .replace("loss,1", "loss,cost")
        .replace("4.29,1", "4.29,2")
    )
    text = text.replace("4.27,1", "4.27,2").replace("4.3,1", f"4.3,{cell}")
    assert "arms did not cost the same as pre: post 2.00×" in ablate.compare(saved(tmp_path, text)).notes


@pytest.mark.parametrize("margin", ["inf", "nan", "-1", "0", "-inf"])
def test_a_margin_is_a_finite_number_above_zero(
    margin: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, CSV)
    said = f"ablate: --margin {float(margin)}: expected a finite number above 0"
    assert error_of(path, capsys, f"--margin={margin}") == said

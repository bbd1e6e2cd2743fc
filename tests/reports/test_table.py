"""Tables: what a column says of each thing, and cells that are never lost."""

from __future__ import annotations

import pytest

from reports.page.wording.table import NONE, Table


@pytest.mark.parametrize("row", [("a",), ("a", "1", "LOST")])
def test_a_row_has_a_cell_for_each_heading(row: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"{len(row)} cells, the table 2 columns"):
        Table(("arm", "loss"), (("b", "2"), row))


def test_columns_say_a_cell_of_each_thing() -> None:
    table = Table.of(["a", "bc"], {"name": str, "letters": lambda name: str(len(name))})
    assert table.lines == (("name", "letters"), ("a", "1"), ("bc", "2"))


def test_columns_without_a_value_are_left_out() -> None:
    table = Table(("arm", "loss", "accuracy", "note"), (("a", "1", NONE, NONE), ("b", NONE, NONE, NONE)), labels=1)
    assert table.without_empty() == Table(("arm", "loss"), (("a", "1"), ("b", NONE)))
    assert table.without_empty(["accuracy"]).lines[0] == ("arm", "loss", "note")
    assert table.without_empty(["loss"]) == table

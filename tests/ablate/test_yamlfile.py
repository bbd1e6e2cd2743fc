"""YAML 1.2 with positions, against the specification's own tables and hostile files."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from ablate.study.complaints import StudyError
from ablate.study.yamlfile import parse_yaml, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # YAML 1.2.2 §10.3.2, and the traps of YAML 1.1 on the right of them
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        ("+.5", 0.5),
        ("-1.", -1.0),
        ("0o17", 15),
        ("0x1F", 31),
        ("017", 17),
        ("-0", 0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("~", None),
        ("", None),
        ("true", True),
        ("FALSE", False),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("2001-01-01", "2001-01-01"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("8/3x", "8/3x"),
        ("'1'", "1"),
        ("!!str 5", "5"),
    ],
)
def test_plain_scalars_have_the_types_of_yaml_1_2(text: str, value: object) -> None:
    found = parse_yaml(f"key: {text}", "f").data["key"]
    assert (type(found), found) == (type(value), value)


def test_a_yaml_1_1_directive_does_not_change_the_types() -> None:
    assert parse_yaml("%YAML 1.1\n---\na: off\n", "f").data == {"a": "off"}


def test_not_a_number_is_read() -> None:
    assert math.isnan(parse_yaml("a: .nan", "f").data["a"])


def test_every_key_value_and_item_has_its_position() -> None:
    document = parse_yaml("a:\n  b.c: [1, {d: 2}]\n", "f")
    assert str(document.keys["a", "b.c"]) == "f:2:3"
    assert str(document.values["a", "b.c"]) == "f:2:8"
    assert str(document.values["a", "b.c", 0]) == "f:2:9"
    assert str(document.keys["a", "b.c", 1, "d"]) == "f:2:13"


def test_anchors_aliases_and_merge_keys_work() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {z: 3, <<: *a, y: 4}\nc: [*a]\nd:\n  <<: [{x: 5}, *a]\n"
    document = parse_yaml(text, "f")
    assert document.data["b"] == {"x": 1, "y": 4, "z": 3}
    assert document.data["c"] == [{"x": 1, "y": 2}]
    assert document.data["d"] == {"x": 5, "y": 2}
    assert str(document.values["b", "y"]) == "f:2:22"
    assert str(document.keys["b", "x"]) == "f:1:8"


BOMB = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3:1: a: given twice (first on line 1)"),
        ("a:\n\tb: 1\n", "f:2:1: not YAML: tab in the indentation: use spaces"),
        ("a: [1\n", "f:2:1: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: b: c\n", "f:1:5: not YAML: mapping values are not allowed here"),
        ("a: 1\n---\nb: 2\n", "f:2:1: not YAML: but found another document"),
        ("a: *nowhere\n", "f:1:4: not YAML: found undefined alias 'nowhere'"),
        ("a: \x00\n", "f:1:4: not YAML: a control character"),
        ("a: !!python/object:os.system ls\n", "f:1:4: a: tags are not allowed here"),
        ("a: !!map\n  b: !!set {c}\n", "f:2:6: a.b: tags are not allowed here"),
        ("a: !!int x\n", "f:1:4: a: not a number: 'x'"),
        ("a: " + "9" * 5000, "f:1:4: a: more than 4300 digits"),
        ("? [a]\n: b\n", "f:1:3: a key must be text, not a list or a map"),
        ("a: {<<: 3}\n", "f:1:9: a.<<: must be a map, or a list of maps"),
        ("a: &x [*x]\n", "f:1:4: a.0.0: nested too deeply, or an alias that contains itself"),
        ("a: &x {b: *x}\n", "f:1:4: a.b.b: nested too deeply, or an alias that contains itself"),
        ("a: &x {<<: *x}\n", "f:1:4: a: nested too deeply, or an alias that contains itself"),
        ("[" * 2000, "f: nested too deeply"),
        ("? " + "a." * 2000 + "b\n: 1\n", "nested too deeply"),
        ("a: {" + "b." * 30 + "c: {" + "d." * 30 + "e: 1}}\n", "nested too deeply"),
        (BOMB, "values after its aliases are expanded"),
    ],
)
def test_what_is_not_one_plain_document_says_where(text: str, message: str) -> None:
    started = time.process_time()
    with pytest.raises(StudyError) as caught:
        parse_yaml(text, "f")
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert time.process_time() - started < 20


def test_bytes_that_are_not_utf_8_have_a_position(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"question: ok\nsource: caf\xe9\n")
    with pytest.raises(StudyError) as caught:
        read_yaml(path)
    assert str(caught.value) == f"{path}:2:12: not UTF-8 text (byte 0xe9)"


def test_a_missing_file_a_folder_and_a_huge_file(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"absent\.yaml: cannot be read: No such file"):
        read_yaml(tmp_path / "absent.yaml")
    with pytest.raises(StudyError, match=r"cannot be read|too large"):
        read_yaml(tmp_path)
    huge = tmp_path / "huge.yaml"
    huge.write_bytes(b"#" * 1_000_001)
    with pytest.raises(StudyError, match="too large for a study: at most 1000000 bytes"):
        read_yaml(huge)
    with pytest.raises(StudyError, match="too large for a study: at most 1000000 bytes"):
        read_yaml(Path("/dev/zero"))

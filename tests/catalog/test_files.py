"""Reading files: YAML 1.2 means what it says, and no hostile file costs time, memory or a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from windtunnel.catalog import files
from windtunnel.errors import FormatError, MissingError, WindtunnelError

MIB = 2**20


def write(folder: Path, content: bytes | str, name: str = "job.yaml") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, limit: int = MIB) -> object:
    return files.read_yaml(path, limit_bytes=limit)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E+3", 1000.0),
        ("2.", 2.0),
        (".5", 0.5),
        ("-0.0", -0.0),
        ("17", 17),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("-3", -3),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("1:30", "1:30"),
        ("2025-02", "2025-02"),
        ("2025-02-01", "2025-02-01"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("80 GiB", "80 GiB"),
        ("=", "="),
        ("'12'", "12"),
        ('"true"', "true"),
        ("NaN", "NaN"),
        ("-", ["-"]),
        ("[1, 2.5, x]", [1, 2.5, "x"]),
        ("{a: 1, b: {c: }}", {"a": 1, "b": {"c": None}}),
        ("Et*4|(t*4|)*14tmL", "Et*4|(t*4|)*14tmL"),
        (">-\n  folded\n  text", "folded text"),
        ("|\n  1\n", "1\n"),
    ],
)
def test_scalars_follow_the_yaml_1_2_core_schema(tmp_path: Path, text: str, value: object) -> None:
    if text == "-":
        assert read(write(tmp_path, "- '-'")) == value
    else:
        result = read(write(tmp_path, f"key: {text}\n"))
        assert result == {"key": value}
        assert isinstance(result, dict)
        assert type(result["key"]) is type(value)


ODD = "\u2028\u2029\ufeff\ufffe\uffff"
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters=ODD), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), PLAIN, min_size=1), min_size=1, max_size=4))
def test_json_yaml_and_one_object_a_line_agree(value: list[object]) -> None:
    text = json.dumps(value)
    lines = "".join(f"- {json.dumps(item)}\n" for item in value)
    assert files.parse_json(text, "x.json") == value
    assert files.parse_yaml(lines, "x.yaml") == value


def test_a_block_file_reads_as_the_reference_parser_reads_it(tmp_path: Path) -> None:
    text = "a: &x [1, 2]\nb:\n  - {c: 1.5, d: [x, 'y z']}\n  - e: |\n      text\n    f: *x\n"
    assert read(write(tmp_path, text)) == YAML(typ="safe", pure=True).load(text)


def test_a_list_of_json_lines_with_one_other_line_is_still_yaml(tmp_path: Path) -> None:
    assert read(write(tmp_path, '- {"a": 1}\n# note\n- {a: on}\n')) == [{"a": 1}, {"a": "on"}]
    assert read(write(tmp_path, '- {"a": 1}\n\n# note\n- {"a": "on"}\n')) == [{"a": 1}, {"a": "on"}]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE: dict[str, tuple[bytes | str, str]] = {
    "empty": ("", "no value"),
    "only a comment": ("# nothing\n", "no value"),
    "only a marker": ("---\n", "no value"),
    "null": ("~", "no value"),
    "binary": (b"\x7fELF\0\0\0", "UTF-8 text"),
    "utf-16": ("a: 1".encode("utf-16"), "UTF-8"),
    "latin-1": ("a: é".encode("latin-1"), "UTF-8"),
    "too large": (b"a" * (MIB + 1), "at most"),
    "alias bomb": (BOMB, "aliases"),
    "many aliases": ("a: &a 1\nb: [" + "*a, " * 200 + "]", "aliases"),
    "wide alias": (f"a: &a [{'1, ' * 5000}]\nb: [{'*a, ' * 50}]", "aliases"),
    "recursive alias": ("a: &a [*a]", "anchor"),
    "unknown alias": ("a: *b", "anchor"),
    "python object": ("a: !!python/object/apply:os.system ['true']", "tags"),
    "python name": ("!!python/name:os.sep ''", "tags"),
    "custom tag": ("a: !thing 1", "tags"),
    "standard tag": ("a: !!set {b}", "tags"),
    "tag on a list": ("!x [1]", "tags"),
    "duplicate keys": ("a: 1\nb: 2\na: 3", "once"),
    "nested duplicate": ("x: {tp: 1, tp: 2}", "once"),
    "merge key": ("a: &a {b: 1}\nc: {<<: *a}", "merge"),
    "list as key": ("? [1, 2]\n: 3", "key must"),
    "boolean key": ("true: 1", "key must"),
    "null key": ("{: 1}", "key must"),
    "float key": ("1.5: 1", "key must"),
    "deep flow lists": ("[" * 100_000, "deep"),
    "deep flow maps": ("{a: " * 100_000, "deep"),
    "deep block": ("- " * 100_000 + "x", "deep"),
    "deep indentation": ("\n".join(" " * n + "a:" for n in range(500)), "deep"),
    "two documents": ("a: 1\n---\nb: 2\n", "one document"),
    "old version": ("%YAML 1.1\n---\na: yes\n", "directives"),
    "infinite": ("a: .inf", "finite"),
    "not a number": ("a: .nan", "finite"),
    "overflow": ("a: 1e400", "finite"),
    "unclosed": ("a: [1, 2", "not YAML"),
    "tab": ("a:\n\t- b", "not YAML"),
    "colon": ("a: b: c", "not YAML"),
    "control characters": ("a: \x01", "not YAML"),
    "bad escape": ('a: "\\q"', "not YAML"),
    "unclosed quote": ('a: "b', "not YAML"),
    "long key": (f"{'k' * 100_000}: [", "not YAML"),
    "directive": ("%FOO\n%%%\n", "directives"),
    "percent": ("%", "directives"),
    "anchors only": ("&a &b &c", "not YAML"),
    "bare anchor": ("a: &", "not YAML"),
    "bare alias": ("a: *", "not YAML"),
    "question marks": ("? " * 50_000, "deep"),
    "commas": ("[" + "," * 100_000, "not YAML"),
    "unfinished unicode escape": ('a: "\\u12"', "not YAML"),
    "surrogate escape": ('"\\ud800": [', "not YAML"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_yaml_is_refused_at_once(tmp_path: Path, case: str) -> None:
    content, words = HOSTILE[case]
    path = write(tmp_path, content)
    start = time.process_time()
    with pytest.raises(FormatError) as refusal:
        read(path)
    assert time.process_time() - start < 2
    fault = refusal.value.faults[0]
    assert words in f"{fault.value} {fault.rule}"
    assert fault.path == str(path)
    assert fault.remedy
    assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize(
    "filler",
    [
        "#\n",
        "a\n",
        "- a\n",
        "? a\n",
        "k: v\n",
        "'",
        '"a" ',
        "&a\n",
        "!a\n",
        "\n",
        "[]\n",
        ": \n",
        "- - -\n",
        "|\n",
        "%a\n",
        "{}",
    ],
)
def test_a_full_size_file_of_anything_is_answered_in_time(tmp_path: Path, filler: str) -> None:
    path = write(tmp_path, filler * (MIB // len(filler)))
    start = time.process_time()
    with contextlib.suppress(FormatError):
        assert read(path)
    assert time.process_time() - start < 4  # twice the budget: the runner may be busy


def test_an_alias_bomb_takes_no_memory(tmp_path: Path) -> None:
    path = write(tmp_path, BOMB)
    tracemalloc.start()
    with pytest.raises(FormatError):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    tracemalloc.stop()


HOSTILE_JSON = {
    "": "empty",
    " \n": "empty",
    "{": "not JSON",
    '{"a": 1, "a": 2}': "once",
    '{"a": NaN}': "finite",
    "[-Infinity]": "finite",
    "[1e999]": "finite",
    "[" * 100_000: "deep",
    "[" * 70 + "]" * 70: "deep",
    '{"a": 1} {"b": 2}': "not JSON",
    "{'a': 1}": "not JSON",
    "[" + "9" * 10_000 + "]": "not a number",
}


@pytest.mark.parametrize("text", HOSTILE_JSON, ids=range(len(HOSTILE_JSON)))
def test_hostile_json_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(FormatError) as refusal:
        read(write(tmp_path, text, "x.json"))
    assert HOSTILE_JSON[text] in refusal.value.faults[0].rule


def test_depth_is_counted_alike_in_json_and_yaml() -> None:
    deepest = "[" * 64 + "]" * 64
    assert files.parse_json(deepest, "x") == files.parse_yaml(deepest, "x")
    for parse in (files.parse_json, files.parse_yaml):
        with pytest.raises(FormatError, match="64 deep"):
            parse(f"[{deepest}]", "x")


def test_what_is_not_a_regular_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in ((tmp_path, "directory"), (tmp_path / "pipe", "regular"), (Path("/dev/zero"), "regular")):
        with pytest.raises(FormatError, match=words):
            read(path)
    for missing in (tmp_path / "none.yaml", write(tmp_path, "a: 1") / "below"):
        with pytest.raises(MissingError, match="no such file"):
            read(missing)
    with pytest.raises(WindtunnelError):
        read(tmp_path / ("x" * 5000))
    with pytest.raises(WindtunnelError):
        read(Path("a\0b"))


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(FormatError, match="read permission"):
        files.read_text(tmp_path.joinpath(), 10) if tmp_path.is_file() else files.read_text(__file__, MIB)


def test_the_size_limit_is_exact(tmp_path: Path) -> None:
    path = write(tmp_path, "a" * 100)
    assert files.read_text(path, 100) == "a" * 100
    with pytest.raises(FormatError, match="100 bytes"):
        files.read_text(path, 99)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert read(write(tmp_path, b"\xef\xbb\xbfa: 1")) == {"a": 1}


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_refusal(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    try:
        value = read(path)
    except WindtunnelError:
        return
    assert value is not None


@given(st.text("abc:-[]{}&*!|>'\"%#?,\n \t01.~@`", max_size=60))
def test_any_yaml_like_text_gives_a_value_or_a_refusal(text: str) -> None:
    try:
        value = files.parse_yaml(text, "x.yaml")
    except FormatError:
        return
    assert value is not None


def test_package_data_is_found_by_name() -> None:
    assert "h100-sxm-80gb" in files.data_names("accelerators")
    assert isinstance(files.load_data("accelerators", "h100-sxm-80gb.yaml"), dict)
    with pytest.raises(MissingError):
        files.load_data("accelerators", "none.yaml")

"""Profiles on disk: what is written is read, what was changed or is of another version is refused."""

from __future__ import annotations

import pytest

from windtunnel.catalog.profiles import append_entries, read_profile, repair, write_profile
from windtunnel.cost.profile import Entry, Profile, key
from windtunnel.errors import FormatError, MissingError


def entry(m: int) -> Entry:
    shape = {"m": m, "n": 4, "k": 8}
    named = key("gemm", "forward", "bf16", shape)
    return Entry(key=named, seconds=0.1 * m, low=0.09 * m, high=0.3 * m, repeats=5, remarks=("throttled",))


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "p.yaml"
    made = Profile(
        device=(("memory_bytes", 1e9), ("name", "part")),
        software=(("torch", "2.13"),),
        method=(("date", "2026-01-01"),),
        entries=(entry(1), entry(2)),
    )
    write_profile(path, made)
    return path, made


def test_what_is_written_is_read(written):
    path, made = written
    read = read_profile(path)
    for part in ("device", "software", "method", "entries"):
        assert getattr(read, part) == getattr(made, part)


def test_a_line_more_is_an_entry_more(written):
    path, made = written
    append_entries(path, [entry(3)])
    assert read_profile(path).entries == (*made.entries, entry(3))


def test_it_is_yaml_that_others_can_read(written):
    from windtunnel.catalog.files import RECORDS_LIMIT, read_yaml

    items = read_yaml(written[0], limit_bytes=RECORDS_LIMIT)
    assert items[0]["profile"] == 1
    assert items[1]["op"] == "gemm"


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_line_cut_short_is_refused_and_can_be_taken_off(written, cut: int):
    path, made = written
    path.write_bytes(path.read_bytes()[:-cut])
    if cut > 1:
        with pytest.raises(FormatError, match="line 3"):
            read_profile(path)
    repair(path)
    assert read_profile(path).entries == made.entries[:1]


@pytest.mark.parametrize(
    ("old", "new"),
    [('"seconds": 0.1', '"seconds": 0.2'), ('"m": 1.0', '"m": 7.0'), ('"pass": "forward"', '"pass": "step"')],
)
def test_a_changed_entry_is_refused(written, old: str, new: str):
    path, _ = written
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(FormatError, match=r"line 2.*changed"):
        read_profile(path)


def test_another_version_is_refused(written):
    path, _ = written
    path.write_text(path.read_text().replace('"profile": 1', '"profile": 2'))
    with pytest.raises(FormatError, match="format 1"):
        read_profile(path)


@pytest.mark.parametrize("text", ["", "model: x\n", "- 1\n", "- {}\n", '- {"profile": 1}\n', '- {"profile": NaN}\n'])
def test_what_is_no_profile_is_refused(tmp_path, text: str):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(FormatError):
        read_profile(path)


def test_no_file():
    with pytest.raises(MissingError):
        read_profile("/nonexistent/p.yaml")

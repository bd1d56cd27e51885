"""One record, one line, whatever is in it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.observability import logs


def test_text_is_one_line_per_record(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logs.configure(path=path)
    log = logging.getLogger("magnetar.test")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("from %s", "peer\r\n2026-01-01 forged")
    log.debug("not shown")
    lines = path.read_text().splitlines()
    assert len(lines) == 1
    assert " ERROR   magnetar.test from peer\\r\\n2026-01-01 forged\\nTraceback" in lines[0]


def test_json_carries_the_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logs.configure(level="debug", path=path, as_json=True)
    try:
        raise ValueError("cause")
    except ValueError:
        logging.getLogger("magnetar.test").exception("failed")
    document = json.loads(path.read_text())
    assert document["level"] == "ERROR"
    assert document["logger"] == "magnetar.test"
    assert document["message"] == "failed"
    assert "ValueError: cause" in document["error"]


def test_second_call_replaces_the_first(tmp_path: Path) -> None:
    logs.configure(path=tmp_path / "one")
    logs.configure(path=tmp_path / "two")
    logging.getLogger("magnetar").info("here")
    assert (tmp_path / "one").read_text() == ""
    assert "here" in (tmp_path / "two").read_text()


def test_stderr_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    logging.getLogger("magnetar.x").warning("out")
    assert " WARNING magnetar.x out" in capsys.readouterr().err


def test_unknown_level_and_unwritable_file_are_start_errors(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="level 'loud' is unknown"):
        logs.configure(level="loud")
    with pytest.raises(StartupError, match="cannot be opened"):
        logs.configure(path=tmp_path)


CONTROLS = "\x1b[2K\x00\x07\x85\u2028\u202e\x9b"


@pytest.mark.parametrize("as_json", [False, True])
def test_control_characters_are_written_as_escapes(tmp_path: Path, *, as_json: bool) -> None:
    path = tmp_path / "log"
    logs.configure(path=path, as_json=as_json)
    logging.getLogger("magnetar.audit").warning("refused: role %s", CONTROLS)
    text = path.read_text()
    assert text.endswith("\n")
    assert not set(text[:-1]) & set(CONTROLS.replace("[2K", ""))
    shown = json.loads(text)["message"] if as_json else text
    assert "\\x1b[2K\\x00\\x07\\x85\\u2028\\u202e\\x9b" in shown


def test_a_long_text_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logs.configure(path=path)
    logging.getLogger("magnetar.test").warning("name %s", "\x00" * 5_000_000)
    assert len(path.read_text()) < 20_000
    assert "(5000005 characters)" in path.read_text()


def test_refusals_are_counted_by_who_was_refused_and_changes_are_not(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logs.configure(path=path, per_minute_max=3)
    audit = logging.getLogger("magnetar.audit")
    for i in range(50):
        audit.warning("refused: role %s", f"noisy {i}", extra={logs.SUBJECT: "noisy"})
        audit.info("changed: %s", i)
    audit.warning("refused: role %s", "quiet", extra={logs.SUBJECT: "quiet"})
    for i in range(500):
        audit.warning("refused: role %s", f"other {i}", extra={logs.SUBJECT: f"other {i}"})
    lines = path.read_text().splitlines()
    assert sum("noisy" in line for line in lines) == 3
    assert sum("quiet" in line for line in lines) == 1
    assert sum("changed" in line for line in lines) == 50
    assert sum("refused" in line for line in lines) == 30

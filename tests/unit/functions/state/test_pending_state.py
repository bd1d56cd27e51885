"""A call sees what calls before it have changed, stored or not."""

from __future__ import annotations

from pathlib import Path

from magnetar.functions.state.pending_state import PendingState
from magnetar.functions.state.state_change import StateChange, StateChanges, counter_bytes
from magnetar.functions.state.state_file import StateFile


def added(amount: int) -> StateChanges:
    return {"n": StateChange(added=amount)}


def put(value: bytes | None) -> StateChanges:
    return {"n": StateChange(True, value)}


def test_changes_are_seen_before_and_after_they_are_stored(tmp_path: Path) -> None:
    with StateFile(tmp_path / "s") as file:
        state = PendingState(file)
        sets: list[StateChanges] = [{} for _ in range(4)]
        made = [added(3), put(counter_bytes(10)), added(5), put(b"text")]
        seen = [counter_bytes(3), counter_bytes(10), counter_bytes(15), b"text"]
        for changes, into, value in zip(made, sets, seen, strict=True):
            state.take(changes, into)
            assert state.value("n") == value
        for into in sets:
            file.commit(into)
            state.stored(into)
            assert state.value("n") == b"text"
        found = file.get("n")
        assert found is not None
        assert (found.value, found.version) == (b"text", 3)


def test_additions_of_several_instances_do_not_get_lost(tmp_path: Path) -> None:
    with StateFile(tmp_path / "s") as one, StateFile(tmp_path / "s") as other:
        one.commit(added(1))
        other.commit(added(2))
        found = one.get("n")
        assert found is not None
        assert found.number == 3


def test_changes_and_positions_are_stored_together(tmp_path: Path) -> None:
    with StateFile(tmp_path / "s") as file:
        assert file.position("t") == -1
        file.commit(added(1), {"t": 41})
        assert file.position("t") == 41


def test_deleted_values_are_gone_and_others_end(tmp_path: Path) -> None:
    with StateFile(tmp_path / "s") as file:
        file.commit(put(b"x"))
        file.commit(put(None))
        assert file.get("n") is None
        file.commit({"short": StateChange(True, b"x", 0, 1)})
        assert file.get("short") is None
        assert file.keys() == []

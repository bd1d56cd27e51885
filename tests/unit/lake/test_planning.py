"""What changes in a table, and which process may change it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from magnetar.lake.lake_values import LakeFile, ListVersion, LogFiles
from magnetar.lake.planning import Plan, plan, property_of, seen

A, B, C = (LakeFile(f"file:///{name}", 10, number) for number, name in enumerate("abc"))


def wanted(version: ListVersion, *files: LakeFile) -> LogFiles:
    return LogFiles("persistent://public/default/t", -1, version, files)


def test_files_come_and_go() -> None:
    made = plan(wanted(ListVersion(1, 5), A, C), [A.path, B.path], ListVersion(1, 4))
    assert made == Plan(add=(C,), remove=frozenset({B.path}), expires=True)
    assert plan(wanted(ListVersion(1, 5), A), [A.path], ListVersion(1, 4)).empty


def test_an_older_list_changes_nothing() -> None:
    assert plan(wanted(ListVersion(1, 5), A, B), [A.path], ListVersion(1, 6)).behind
    assert plan(wanted(ListVersion(1, 5), A, B), [A.path], ListVersion(1, 5, retired=1)).behind
    assert not plan(wanted(ListVersion(1, 5), A, B), [A.path], ListVersion(1, 5)).behind
    # A topic that is deleted and made again counts from 0.
    assert not plan(wanted(ListVersion(2, 0), A), [], ListVersion(1, 900, retired=1)).behind


def test_retiring_is_noted_though_nothing_is_there() -> None:
    """A job that has planned to add what is about to be deleted must meet a conflict."""
    retiring = wanted(ListVersion(1, 5, retired=1))
    assert plan(retiring, [], ListVersion(1, 5)) == Plan(note=True, expires=True)
    assert plan(retiring, [], retiring.version).empty


def test_merged_files_keep_earlier_snapshots_until_their_files_go() -> None:
    """Rows are the same in other files, so a reader that follows the table has nothing to read anew."""
    merged = LogFiles(
        "persistent://public/default/t", -1, ListVersion(1, 5), (C,), frozenset({A.path, B.path})
    )
    assert LogFiles.from_json(merged.to_json()) == merged
    before = [A.path, B.path]
    assert plan(merged, before, None) == Plan(add=(C,), remove=frozenset(before), replaces=True)
    # Together with what retention takes it is not a mere replacement.
    part = replace(merged, replaced=frozenset({A.path}))
    assert plan(part, before, None) == Plan(add=(C,), remove=frozenset(before), expires=True)
    # The lag is over: nothing names the old files any more.
    gone = replace(merged, version=ListVersion(1, 5, retired=1), replaced=frozenset())
    assert plan(gone, [C.path], ListVersion(1, 5)) == Plan(note=True, expires=True)


def test_properties_hold_what_was_seen() -> None:
    version = ListVersion(1_700_000_000_000, 12, 1)
    properties = {property_of(-1): version.encode(), property_of(3): "1:2:0", property_of(4): "?", "x": "y"}
    assert seen(properties) == {-1: version, 3: ListVersion(1, 2)}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 1)), min_size=1))
def test_a_table_never_goes_back(steps: list[tuple[int, int, int]]) -> None:
    known = None
    for step in steps:
        version = ListVersion(*step)
        made = plan(wanted(version, A), [], known)
        assert made.behind == (known is not None and version < known)
        if not made.behind:
            known = version


def test_values_survive_the_wire() -> None:
    files = wanted(ListVersion(7, 8, 1), A, B)
    assert LogFiles.from_json(files.to_json()) == files

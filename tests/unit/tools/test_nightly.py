"""Which tests run with `--nightly` alone: a variant of a test that runs by day."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.order import waits_for_the_night


def item(*marks: pytest.MarkDecorator) -> Any:
    by_name = {each.name: each.mark for each in marks}
    return SimpleNamespace(nodeid="tests/a.py::one[zk]", get_closest_marker=by_name.get)


def test_a_marked_case_waits_unless_its_test_runs_with_all() -> None:
    nightly = pytest.mark.nightly("the same on etcd")
    assert not waits_for_the_night(item())
    assert waits_for_the_night(item(nightly))
    assert not waits_for_the_night(item(nightly, pytest.mark.every_run))


def test_a_mark_without_its_reason_is_an_error() -> None:
    with pytest.raises(AssertionError, match="what runs by day in its place"):
        waits_for_the_night(item(pytest.mark.nightly))

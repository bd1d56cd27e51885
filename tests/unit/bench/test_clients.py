"""The official clients as load: what is read of the kernel, of perf and of `/metrics`, and which cases are
run."""

from __future__ import annotations

import math

import pytest
from bench.clients.cases import CASES, chosen
from bench.clients.counters import commits_in, counted, switches_in
from bench.clients.programs import CLIENTS


def test_both_kinds_of_context_switches_count() -> None:
    status = "Name:\tloop\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n"
    assert switches_in(status) == 15


def test_commits_are_the_syncs_of_the_store() -> None:
    assert commits_in("# TYPE magnetar_sync_seconds histogram\nmagnetar_sync_seconds_count 1234\n") == 1234


def test_commits_are_unknown_where_they_are_not_said() -> None:
    assert math.isnan(commits_in("other_count 3\n"))


def test_counts_of_perf_leave_out_what_is_not_supported() -> None:
    text = "# started on x\n\n120;;raw_syscalls:sys_enter;1;100.00;;\n<not supported>;;instructions;0;0;;\n"
    assert counted(text) == {"raw_syscalls:sys_enter": 120}


def test_cases_are_chosen_by_pattern_in_their_order() -> None:
    assert [case.name for case in chosen(["go-flood-*"])] == [
        "go-flood-100b",
        "go-flood-1k",
        "go-flood-1k-batched",
    ]


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no case is named nothing"):
        chosen(["nothing"])


def test_every_case_has_a_name_and_a_client_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.client for case in CASES} == CLIENTS.keys()

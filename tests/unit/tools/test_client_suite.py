"""What is made of the cases of the official client's tests."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import client_suite
import pytest
import suite_failover
import suite_services

from magnetar.auth import token
from magnetar.auth.identity import Credentials


@pytest.mark.parametrize(
    ("code", "text", "outcome"),
    [
        (0, "Ran 1 test in 0.1s\n\nOK\n", "passed"),
        (0, "Ran 1 test in 0.1s\n\nOK (skipped=1)\n", "skipped"),
        (0, "Ran 0 tests in 0.0s\n\nOK (skipped=1)\n", "skipped"),
        (-11, "Ran 1 test in 0.1s\n\nOK\n", "crashed at exit"),
        (-11, "", "failed"),
        (1, "FAILED (failures=1)\n", "failed"),
        (5, "NO TESTS RAN\n", "failed"),
    ],
)
def test_outcomes(code: int, text: str, outcome: str) -> None:
    assert client_suite.outcome_of(code, text) == outcome


def test_the_table_counts_by_module_and_in_total(capsys: pytest.CaptureFixture[str]) -> None:
    results = client_suite.Results()
    for module, case, outcome in (
        ("a_test", "a_test.A.x", "passed"),
        ("a_test", "a_test.A.y", "hung"),
        ("b_test", "b_test.B.x", "crashed at exit"),
        ("b_test", "b_test.B.y", "skipped"),
    ):
        results.add(module, case, outcome, "said")
    assert capsys.readouterr().out.splitlines()[1] == "hung             a_test.A.y"
    rows = [line.split() for line in results.table().splitlines()]
    assert rows[1:4] == [
        ["a_test", "2", "1", "1", "0"],
        ["b_test", "2", "1", "0", "1"],
        ["total", "4", "2", "1", "1"],
    ]
    assert results.failures == [("a_test.A.y", "said")]
    assert not results.expected_only(set())
    assert results.expected_only({"a_test.A.y"})


def test_a_run_without_cases_proves_nothing() -> None:
    assert not client_suite.Results().expected_only(set())


def test_what_is_no_checkout_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no tests/pulsar_test\.py"), client_suite.copied(tmp_path):
        pass


def test_the_checkout_stays_as_it_is(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "pulsar_test.py").write_text("")
    with client_suite.copied(tmp_path) as (copy, _):
        (copy / "left.txt").write_text("")
    assert os.listdir(tests) == ["pulsar_test.py"]
    assert not copy.exists()


def test_the_tokens_of_the_suite_are_valid() -> None:
    key = b"k" * 32
    provider = token.TokenProvider(token.secret_key(key))
    made = suite_services.make_token("me", key)
    assert provider.identify(Credentials("token", made.encode()), now_ms=0).role == "me"


def test_a_taken_port_is_named() -> None:
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=f"port {port}, which the suite uses, is taken"):
            suite_services.check_ports((port,))


def test_the_failover_test_finds_what_it_looks_for(tmp_path: Path) -> None:
    variables = suite_failover.environment(tmp_path / "f")
    assert os.access(Path(variables["PATH"].partition(os.pathsep)[0]) / "docker", os.X_OK)
    assert (tmp_path / "f" / "testcontainers" / "core" / "container.py").exists()


def test_an_address_that_answers_or_refuses_is_not_silent() -> None:
    with contextlib.closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        address = other.getsockname()
        assert not client_suite.is_silent(address), "bound, but refused"
        other.listen()
        assert not client_suite.is_silent(address)

"""The official Go client, unmodified, against a real standalone.

One program of ours (`driver/`) runs all scenarios at once; each is a test here. What is needed: Go, and once
a proxy that it can fetch modules from.
"""

from __future__ import annotations

import pytest

from support import go_client
from support.serving import on_a_cluster
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.slow]

TRANSACTIONS = go_client.scenarios("transactions.go")


@pytest.fixture(scope="module")
def outcomes(standalone: StandaloneProcess) -> dict[str, str]:
    """Each scenario with the reason of its failure, "" when it passed."""
    try:
        # Several brokers offer no transactions: what waits for them takes the driver's time.
        chosen = (
            [each for each in go_client.scenarios() if each not in TRANSACTIONS] if on_a_cluster() else []
        )
        return go_client.run_driver(standalone.broker_url, standalone.http_url, *chosen)
    except go_client.NotHereError as reason:
        pytest.skip(f"no Go client: {reason}")


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(each, marks=pytest.mark.one_process("transactions") if each in TRANSACTIONS else ())
        for each in go_client.scenarios()
    ],
)
def test_scenario(outcomes: dict[str, str], scenario: str) -> None:
    assert not outcomes[scenario], outcomes[scenario]

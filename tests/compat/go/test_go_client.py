"""The official Go client, unmodified, against a real standalone.

One program of ours (`driver/`) runs all scenarios at once; each is a test here. What is needed: Go, and once
a proxy that it can fetch modules from.
"""

from __future__ import annotations

import pytest

from support import go_client
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def outcomes(standalone: StandaloneProcess) -> dict[str, str]:
    """Each scenario with the reason of its failure, "" when it passed."""
    try:
        return go_client.run_driver(standalone.broker_url, standalone.http_url)
    except go_client.NotHereError as reason:
        pytest.skip(f"no Go client: {reason}")


@pytest.mark.parametrize("scenario", go_client.scenarios())
def test_scenario(outcomes: dict[str, str], scenario: str) -> None:
    assert not outcomes[scenario], outcomes[scenario]

"""Apache's side of the stories, for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.apache_bookkeeper import ApacheBookKeeper, apache_bookkeeper
from support.drivers import NotHereError


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheBookKeeper]:
    """A Java process with a ZooKeeper."""
    try:
        with apache_bookkeeper(tmp_path_factory.mktemp("apache")) as process:
            yield process
    except NotHereError as reason:
        pytest.skip(f"no Apache BookKeeper: {reason}")

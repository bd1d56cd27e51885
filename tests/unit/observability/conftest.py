"""What tests of the logs share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Loggers are as before after each test."""
    logger = logging.getLogger("magnetar")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    flags = logging.logThreads, logging.logProcesses, logging.logMultiprocessing
    logger.handlers = []
    yield
    for handler in logger.handlers:
        handler.close()
    logger.handlers, logger.propagate = handlers, propagate
    logger.setLevel(level)
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = flags

"""Programs that start anew because a worker of Spark did not start in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar.spark.pipelines.script import RETRIES_MAX, unless_begun

NO_WORKER = RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back.")


def failing(errors: list[Exception]) -> Callable[[], int]:
    """Raises these in turn; then it goes well."""

    def work() -> int:
        if errors:
            raise errors.pop(0)
        return 3

    return work


@pytest.mark.parametrize("times", range(RETRIES_MAX + 1))
def test_a_program_starts_anew_while_nothing_had_begun(times: int) -> None:
    said: list[str] = []
    assert unless_begun(failing([NO_WORKER] * times), lambda: False, said.append) == 3
    assert len(said) == times


@pytest.mark.parametrize(
    ("errors", "begun", "left"),
    [
        ([NO_WORKER] * (RETRIES_MAX + 2), False, 1),
        ([NO_WORKER] * 2, True, 1),
        ([ValueError("the program's own"), NO_WORKER], False, 1),
    ],
)
def test_it_does_not_for_ever_nor_when_work_was_done_nor_for_other_errors(
    errors: list[Exception], begun: bool, left: int
) -> None:
    first = errors[0]
    with pytest.raises(type(first), match=str(first)):
        unless_begun(failing(errors), lambda: begun, lambda _: None)
    assert len(errors) == left

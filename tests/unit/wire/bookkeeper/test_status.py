from __future__ import annotations

from magnetar.wire.bookkeeper import bookkeeper_pb2 as pb
from magnetar.wire.bookkeeper.status import Status, of_v2, of_v3, v2_number


def test_every_status_code_of_the_protocol_has_its_status() -> None:
    assert {status.value for status in Status} == set(pb.StatusCode.values())
    for status in Status:
        assert of_v3(status.value) is status


def test_version_2_keeps_every_status_but_one() -> None:
    for status in Status:
        kept = Status.IO_ERROR if status is Status.UNKNOWN_LEDGER_STATE else status
        assert of_v2(v2_number(status)) is kept


def test_the_number_that_kills_apaches_client_is_read_but_never_sent() -> None:
    assert of_v2(107) is Status.UNKNOWN_LEDGER_STATE
    assert 107 not in {v2_number(status) for status in Status}


def test_what_nobody_knows_is_nothing_certain() -> None:
    assert of_v2(12345) is Status.IO_ERROR
    assert of_v3(12345) is Status.IO_ERROR


def test_certain_are_the_entry_itself_and_its_certain_absence() -> None:
    certain = {status for status in Status if status.is_certain}
    assert certain == {Status.OK, Status.NO_LEDGER, Status.NO_ENTRY}

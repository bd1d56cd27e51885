"""The budget of bytes that are not durable: which connection waits for which."""

from __future__ import annotations

from magnetar.broker.topic.intake import (
    ACTIVE_TICKS,
    BUSY_BYTES,
    SHARE_BYTES_MIN,
    SHARED_BYTES,
    Intake,
    TenantShare,
)

MIB = 1 << 20
HALF = SHARED_BYTES // 2


class Connection:
    """Notes whether it is read."""

    def __init__(self, intake: Intake, tenant: str) -> None:
        self.share: TenantShare = intake.share(tenant)
        self._intake = intake
        self.read = True

    def pause_reading(self) -> None:
        self.read = False

    def resume_reading(self) -> None:
        self.read = not self._intake.holds(self, self.share)

    def brings(self, size: int) -> None:
        self._intake.took(self, self.share, size)

    def durable(self, size: int) -> None:
        self._intake.gave_back(self.share, size)


def test_alone_a_tenant_may_fill_everything() -> None:
    intake = Intake(64 * MIB)
    one = Connection(intake, "a")
    one.brings(64 * MIB)
    assert one.read
    one.brings(1)
    assert not one.read
    one.durable(40 * MIB)
    assert one.read
    assert intake.bytes_used == 24 * MIB + 1


def test_beside_another_it_gets_its_share_and_the_other_is_read() -> None:
    intake = Intake(64 * MIB)
    loud, quiet = Connection(intake, "a"), Connection(intake, "b")
    quiet.brings(100)
    loud.brings(HALF)
    assert loud.read
    loud.brings(1)
    assert (loud.read, quiet.read) == (False, True)
    quiet.brings(100)
    assert quiet.read
    loud.durable(HALF // 2)
    assert not loud.read, "it goes on when half of its share is free"
    loud.durable(1)
    assert loud.read


def test_who_waited_longest_goes_on_first_and_only_as_many_as_there_is_room_for() -> None:
    intake = Intake(64 * MIB)
    Connection(intake, "b").brings(1)
    many = [Connection(intake, "a") for _ in range(4)]
    for one in many:
        one.brings(HALF)
    assert not any(one.read for one in many)
    many[0].durable(4 * HALF)
    assert [one.read for one in many] == [True, False, False, False]
    intake.tick()
    assert all(one.read for one in many), "the one that went on brought nothing: it keeps nobody waiting"


def test_all_that_bring_much_are_paused_at_once() -> None:
    intake = Intake(64 * MIB)
    Connection(intake, "b").brings(1)
    busy, small = Connection(intake, "a"), Connection(intake, "a")
    busy.brings(BUSY_BYTES)
    small.brings(10)
    Connection(intake, "a").brings(HALF)
    assert (busy.read, small.read) == (False, True)


def test_who_falls_silent_leaves_everything_to_the_other() -> None:
    intake = Intake(64 * MIB)
    loud, quiet = Connection(intake, "a"), Connection(intake, "b")
    quiet.brings(1)
    quiet.durable(1)
    loud.brings(HALF + 1)
    assert not loud.read
    for _ in range(ACTIVE_TICKS):
        loud.brings(0)
        intake.tick()
    assert intake.active == 2
    loud.brings(0)
    intake.tick()
    assert intake.active == 1
    assert loud.read
    assert intake.share_bytes_max == intake.bytes_max


def test_of_very_many_each_has_enough_for_a_few_messages() -> None:
    intake = Intake(64 * MIB)
    for number in range(200):
        Connection(intake, f"t{number}").brings(1)
    assert intake.share_bytes_max == SHARE_BYTES_MIN
    assert Intake(1_000).share_bytes_max == 1_000


def test_a_connection_that_is_gone_is_not_let_go() -> None:
    intake = Intake(64 * MIB)
    Connection(intake, "b").brings(1)
    gone = Connection(intake, "a")
    gone.brings(2 * HALF)
    intake.left(gone, gone.share)
    gone.durable(2 * HALF)
    assert not gone.read
    assert not gone.share.held
    assert not gone.share.busy

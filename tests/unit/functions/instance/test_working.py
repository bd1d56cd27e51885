"""Which messages are called next: one by one, in lists, in windows."""

from __future__ import annotations

from magnetar.functions.instance.plan import EFFECTIVELY_ONCE, WindowPlan
from magnetar.functions.instance.working import InWindows
from support.passages import Make, values


def test_a_turn_ends_after_ten_milliseconds(make: Make) -> None:
    bed = make("times = []\ndef process(input: bytes):\n    times[0].pass_s(0.004)\n    return input\n")
    bed.function.loaded.module.times.append(bed.time)
    bed.put(*values(10))
    bed.turn()
    assert len(bed.published()) == 3, "acknowledgements and questions do not wait for the rest"
    assert bed.work.next_s(bed.passage) == 0.0
    while bed.passage.ready:
        bed.turn()
    assert bed.published() == list(values(10))


def test_a_list_that_fails_is_halved_until_the_message_is_alone(make: Make) -> None:
    code = (
        "calls = []\ndef process(batch: list[bytes]):\n    calls.append(len(batch))\n"
        "    if b'2' in batch:\n        raise ValueError\n    return batch\n"
    )
    bed = make(code, retries_max=0, dead_letter_topic="dead")
    bed.put(*values(4))
    bed.turn()
    assert bed.function.loaded.module.calls == [4, 2, 2, 1, 1]
    assert (bed.published(), bed.published("dead")) == ([b"0", b"1", b"3"], [b"2"])
    assert bed.acknowledged == 4


def test_nothing_of_a_list_that_fails_counts_where_order_does(make: Make) -> None:
    code = "def process(batch: list[bytes]):\n    batch.index(b'2') and 1 / 0\n    return batch\n"
    bed = make(code, ordered=True)
    bed.put(*values(4))
    bed.turn()
    assert (bed.published(), bed.acknowledged) == ([], 0)
    assert bed.passage.held is not None
    bed.turn(0.05)
    assert bed.counters.total.user_exceptions == 1, "its pause is not over"
    bed.turn(0.06)
    assert bed.passage.held.attempts == 2


def test_a_list_is_one_entry_with_effectively_once(make: Make) -> None:
    code = "calls = []\ndef process(batch: list[bytes]):\n    calls.append(len(batch))\n    return batch\n"
    bed = make(code, guarantee=EFFECTIVELY_ONCE)
    bed.put(*values(3))
    bed.turn()
    assert bed.function.loaded.module.calls == [1, 1, 1]
    assert bed.acknowledged == 3


def test_a_list_of_another_length_is_refused(make: Make) -> None:
    bed = make(
        "def process(batch: list[bytes]):\n    return [b'x']\n", retries_max=0, dead_letter_topic="dead"
    )
    bed.put(*values(2))
    bed.turn()
    assert bed.published("dead") == [], "each message alone has one result"
    assert bed.published() == [b"x", b"x"]


def test_a_window_of_messages(make: Make) -> None:
    bed = make(
        "def process(values: list[bytes]):\n    return b'+'.join(values)\n",
        window=WindowPlan(length_count=3, slide_count=1),
    )
    bed.put(*values(4))
    assert bed.work.next_s(bed.passage) == 0.0
    bed.turn()
    assert bed.published() == [b"0", b"0+1", b"0+1+2", b"1+2+3"]
    assert bed.acknowledged == 2, "those that later windows have are not"
    assert isinstance(bed.work, InWindows)
    assert bed.work.open_messages == 2
    assert not bed.work.leaves_nothing


def test_a_window_that_fails_is_called_again(make: Make) -> None:
    code = (
        "calls = []\ndef process(values: list[bytes]):\n    calls.append(1)\n"
        "    if len(calls) < 3:\n        raise ValueError\n    return b'+'.join(values)\n"
    )
    bed = make(code, window=WindowPlan(length_ms=1000))
    bed.put(*values(2))
    bed.turn()
    bed.turn(1.0)
    assert isinstance(bed.work, InWindows)
    assert (bed.published(), bed.work.attempts) == ([], 1)
    bed.put(b"late")
    bed.turn(0.1)
    assert bed.work.attempts == 2
    bed.turn(0.2)
    assert (bed.published(), bed.acknowledged) == ([b"0+1"], 2)


def test_a_value_that_cannot_be_decoded_is_a_failure_of_its_message_alone(make: Make) -> None:
    for code in (
        "def process(x: int):\n    return x\n",
        "def process(batch: list[int]):\n    return batch\n",
    ):
        bed = make(code, retries_max=0, dead_letter_topic="dead")
        bed.put(b"1", b"x", b"2")
        bed.turn()
        assert (bed.published(), bed.published("dead")) == ([b"1", b"2"], [b"x"])

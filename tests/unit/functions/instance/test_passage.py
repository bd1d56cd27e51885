"""From delivery to acknowledgement: what is acknowledged when, and what becomes of what fails."""

from __future__ import annotations

import pytest

from magnetar.functions.instance.plan import AT_MOST_ONCE, EFFECTIVELY_ONCE, MANUAL
from support.passages import IN, Make

SAME = "def process(input: bytes):\n    return input\n"
COUNTS = "def process(input: bytes, context):\n    context.incr_counter('n', int(input))\n    return input\n"
FAILS = (
    "def process(input: bytes):\n    if input == b'bad':\n        raise ValueError('no')\n    return input\n"
)


def test_an_entry_is_acknowledged_after_the_receipts_of_its_results(make: Make) -> None:
    bed = make(SAME)
    bed.outputs.held = True
    bed.put(b"a", b"b")
    bed.turn()
    assert (bed.published(), bed.acknowledged) == ([b"a", b"b"], 0)
    bed.outputs.held = False
    bed.turn()
    assert bed.acknowledged == 2
    assert bed.passage.is_idle


def test_at_most_once_acknowledges_before_the_call_and_never_repeats(make: Make) -> None:
    bed = make(FAILS, guarantee=AT_MOST_ONCE)
    bed.put(b"bad")
    assert bed.acknowledged == 1
    bed.turn()
    bed.turn(100)
    assert (bed.published(), bed.counters.total.user_exceptions) == ([], 1)


def test_a_message_that_fails_is_called_again_and_becomes_a_dead_letter(make: Make) -> None:
    bed = make(FAILS, retries_max=1, dead_letter_topic="dead")
    bed.put(b"bad", b"good")
    bed.turn()
    assert (bed.published(), bed.acknowledged) == ([b"good"], 1)
    bed.turn(0.05)
    assert bed.counters.total.user_exceptions == 1, "its pause is not over"
    bed.turn(0.06)
    assert bed.acknowledged == 2
    (letter,) = (each.output for each in bed.outputs.published if each.topic == "dead")
    assert letter.payload == b"bad"
    assert letter.properties["EXCEPTION"] == "ValueError: no"
    assert (letter.properties["ATTEMPTS"], letter.properties["REAL_TOPIC"]) == ("2", IN)
    assert "raise ValueError" in letter.properties["TRACEBACK"]


def test_where_order_counts_a_message_that_fails_holds_up_those_behind_it(make: Make) -> None:
    bed = make(FAILS, ordered=True)
    bed.put(b"a", b"bad", b"c")
    bed.turn()
    bed.turn(1.0)
    assert (bed.published(), bed.acknowledged) == ([b"a"], 1)
    assert "has failed 2 times and holds up those behind it" in bed.counters.detail
    bed.file.write_text(SAME)
    bed.passage.renew(type(bed.function)(bed.plan, None, bed.function.clock))
    bed.turn()
    assert (bed.published(), bed.acknowledged) == ([b"a", b"bad", b"c"], 3), "new code is tried at once"
    assert bed.counters.detail == ""


def test_what_the_state_has_is_not_called_again_with_effectively_once(make: Make) -> None:
    bed = make(COUNTS, guarantee=EFFECTIVELY_ONCE, state=True)
    bed.put(b"1", b"2")
    bed.turn()
    bed.outputs.held = True
    bed.put(b"4")
    bed.turn()
    assert (bed.value("n"), bed.acknowledged) == (3, 2), "the state follows the receipts"
    bed.begin()
    bed.put(b"2", b"4", b"8", first=1)
    bed.turn()
    assert bed.value("n") == 15
    assert bed.published() == [b"4", b"8"]
    assert bed.acknowledged == 3, "what was repeated is acknowledged too"


def test_a_state_is_stored_before_its_messages_are_acknowledged(make: Make) -> None:
    bed = make(COUNTS, state=True)
    seen: list[int | None] = []
    acknowledge = bed.inputs.acknowledge
    bed.inputs.acknowledge = lambda entries: (seen.append(bed.value("n")), acknowledge(entries))[1]  # type: ignore[method-assign]  # looks at the moment
    bed.put(b"5")
    bed.turn()
    assert seen == [5]


def test_what_a_failed_call_did_does_not_count(make: Make) -> None:
    code = (
        "def process(input: bytes, context):\n    context.incr_counter('n', 1)\n"
        "    context.publish('side', input)\n    if input == b'bad':\n        raise ValueError\n"
    )
    bed = make(code, state=True, retries_max=0, dead_letter_topic="dead")
    bed.put(b"bad", b"good")
    bed.turn()
    assert (bed.value("n"), bed.published("side")) == (1, [b"good"])


def test_a_function_acknowledges_by_itself_with_manual(make: Make) -> None:
    code = (
        "def process(input: bytes, context):\n    if input == b'yes':\n"
        "        context.ack(context.get_message_id(), context.get_current_message_topic_name())\n"
    )
    bed = make(code, guarantee=MANUAL)
    bed.put(b"no", b"yes")
    bed.turn()
    assert bed.acknowledged == 1


def test_an_input_is_not_read_on_while_too_much_waits(make: Make) -> None:
    bed = make(SAME)
    (source,) = bed.inputs.all or (None,)
    assert source is None
    bed.put(b"a")
    (source,) = bed.inputs.all
    source.asked = 0
    bed.passage.ask()
    assert source.asked == source.queue_messages - 1 or source.asked == 0
    bed.turn()
    bed.passage.ask()
    assert 0 < source.asked <= source.queue_messages


def test_the_result_of_a_triggered_message_is_told(make: Make) -> None:
    bed = make(SAME)
    bed.put(b"a", properties={"__magnetar_trigger__": "t1"})
    bed.turn()
    assert bed.triggered == [("t1", b"a")]
    assert bed.outputs.published[0].output.properties == {}


def test_more_results_than_numbers_are_refused_with_effectively_once(make: Make) -> None:
    from magnetar.functions.errors import BadResultError

    bed = make("def process(input: bytes):\n    return [input] * 4097\n", guarantee=EFFECTIVELY_ONCE)
    bed.put(b"a")
    with pytest.raises(BadResultError, match="at most 4096"):
        bed.turn()

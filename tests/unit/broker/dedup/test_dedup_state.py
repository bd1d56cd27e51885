"""Deduplication decisions, without a log."""

from __future__ import annotations

from magnetar.broker.dedup.dedup_state import DedupState, Span, sequence_marks


def admit(
    state: DedupState,
    producer: str,
    sequence_ids: list[int],
    highest_ids: list[int] | None = None,
    counts: list[int] | None = None,
    more: list[bool] | None = None,
) -> list[Span] | None:
    return state.admit(producer, sequence_ids, sequence_marks(sequence_ids, highest_ids, counts, more))


def test_new_numbers_pass_without_spans() -> None:
    state = DedupState()
    assert admit(state, "p", [0, 1, 2]) is None
    assert admit(state, "p", [3, 5]) is None
    state.check()


def test_known_numbers_are_duplicates_in_their_places() -> None:
    state = DedupState({"p": 4})
    assert admit(state, "p", [3, 4, 5, 6]) == [Span(0, 2, True), Span(2, 4, False)]
    assert admit(state, "p", [5, 6]) == [Span(0, 2, True)]


def test_numbers_in_flight_are_duplicates_too() -> None:
    state = DedupState()
    assert admit(state, "p", [0, 1]) is None
    assert state.last_sequence("p") == -1
    assert admit(state, "p", [1]) == [Span(0, 1, True)]
    state.persisted("p", 1)
    assert state.last_sequence("p") == 1


def test_a_batch_counts_up_to_its_highest_number() -> None:
    state = DedupState()
    assert admit(state, "p", [0, 10], [9, 19]) is None
    assert admit(state, "p", [10], [19]) == [Span(0, 1, True)]
    assert admit(state, "p", [20], [29]) is None


def test_a_batch_without_highest_number_counts_its_messages() -> None:
    state = DedupState()
    assert admit(state, "p", [0, 10], counts=[10, 5]) is None
    assert admit(state, "p", [10, 14, 15], counts=[5, 1, 1]) == [Span(0, 2, True), Span(2, 3, False)]


def test_producers_do_not_share_numbers() -> None:
    state = DedupState({"p": 7})
    assert admit(state, "q", [0]) is None
    assert state.last_sequence("q") == -1


def test_pieces_of_a_chunked_message_share_a_number() -> None:
    state = DedupState()
    assert admit(state, "p", [0, 0, 0], more=[True, True, False]) is None
    assert admit(state, "p", [0, 0, 0], more=[True, True, False]) == [Span(0, 3, True)]


def test_a_failed_append_is_forgotten_so_that_the_retry_passes() -> None:
    state = DedupState({"p": 1})
    assert admit(state, "p", [2, 3]) is None
    state.forget_pushed("p")
    assert admit(state, "p", [2, 3]) is None
    assert admit(state, "q", [0]) is None
    state.forget_pushed("q")
    assert admit(state, "q", [0]) is None
    state.check()

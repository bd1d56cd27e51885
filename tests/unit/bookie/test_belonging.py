"""Messages and metadata that belong together start; no crash between two writes makes them look otherwise."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from magnetar.base.errors import StartupError
from magnetar.base.ids import LedgerId
from magnetar.bookie.belonging import (
    Belonging,
    DamagedBelongingError,
    FoundPair,
    Held,
    InMetadata,
    PairVerdict,
    decode,
    encode,
    judge,
)
from magnetar.bookie.quarantine import look

FULL = FoundPair(has_ledgers=True, names_entries=True, names_ledgers=True)
EMPTY = FoundPair(has_ledgers=False, names_entries=False, names_ledgers=False)


def ask(
    mine: Belonging | None, theirs: InMetadata | None, found: FoundPair = FULL, *, accepted: bool = False
) -> PairVerdict:
    return judge(mine, theirs, found, new_instance="new", accepted=accepted, folder="/data/bookie")


def test_the_file_comes_back_and_one_flipped_bit_is_noticed() -> None:
    known = Belonging("x", 7, 8, 513, "older", {LedgerId(5): Held(1, 2, 3, 4), LedgerId(9): Held(6)})
    data = encode(known)
    assert decode(data) == known
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedBelongingError):
            decode(bytes(damaged))


def test_no_crash_makes_a_pair_look_apart() -> None:
    """Each start, tick and stop may end after any of its steps; the next start always goes on."""
    for steps in product(range(4), repeat=4):
        mine: Belonging | None = None
        theirs: InMetadata | None = None
        for done in steps:
            verdict = ask(mine, theirs)
            assert verdict.doubt == ""
            assert verdict.generation > max(
                0 if mine is None else mine.generation, theirs.generation if theirs else 0
            )
            before = mine or Belonging(verdict.instance)
            if done >= 1:
                mine = replace(before, instance=verdict.instance, begun=verdict.generation)
            if done >= 2:
                theirs = InMetadata(verdict.instance, verdict.generation)
            if done >= 3 and mine is not None:
                mine = replace(mine, generation=verdict.generation)


def test_a_new_pair_and_one_of_before_are_taken_as_they_are() -> None:
    assert ask(None, None, EMPTY) == PairVerdict("new", 1, "")
    assert ask(None, None) == PairVerdict("new", 1, "")


def test_missing_metadata_is_refused() -> None:
    nothing_named = FoundPair(has_ledgers=True, names_entries=False, names_ledgers=False)
    for mine in (None, Belonging("x", 5, 5)):
        with pytest.raises(StartupError, match=r"is missing.*Restore .*storage accept"):
            ask(mine, None, nothing_named)
    assert ask(Belonging("x", 5, 5), None, nothing_named, accepted=True) == PairVerdict("x", 6, "")


def test_metadata_from_before_there_were_identities_is_refused_beside_messages_that_have_one() -> None:
    with pytest.raises(StartupError, match="before it had an identity"):
        ask(Belonging("x", 5, 5), None)


def test_missing_messages_are_refused_where_metadata_names_some() -> None:
    gone = FoundPair(has_ledgers=False, names_entries=True, names_ledgers=True)
    for mine in (None, Belonging("x", 5, 5)):
        for theirs in (None, InMetadata("x", 5)):
            with pytest.raises(StartupError, match=r"names messages, and /data/bookie has none"):
                ask(mine, theirs, gone)
    assert ask(None, InMetadata("x", 5), gone, accepted=True) == PairVerdict("x", 6, "")


def test_an_empty_folder_joins_metadata_that_has_lost_nothing() -> None:
    assert ask(None, InMetadata("x", 5), EMPTY) == PairVerdict("x", 6, "")
    assert ask(Belonging("y", 9, 9), InMetadata("x", 5), EMPTY) == PairVerdict("x", 10, "")


def test_foreign_metadata_is_refused() -> None:
    with pytest.raises(StartupError, match=r"belongs to metadata x, not to y"):
        ask(Belonging("x", 5, 5), InMetadata("y", 5))
    assert ask(Belonging("x", 5, 5), InMetadata("y", 9), accepted=True) == PairVerdict("y", 10, "")


def test_older_metadata_is_taken_and_doubted() -> None:
    verdict = ask(Belonging("x", 5, 5), InMetadata("x", 3))
    assert verdict.generation == 6
    assert "generation 3, the messages are at 5" in verdict.doubt
    # Until an operator decides, at each further start.
    again = ask(Belonging("x", 6, 6, doubt=verdict.doubt), InMetadata("x", 6))
    assert again.doubt == verdict.doubt
    assert ask(Belonging("x", 6, 6, doubt=verdict.doubt), InMetadata("x", 6), accepted=True).doubt == ""


def test_an_older_folder_is_refused() -> None:
    for begun in (5, 6):
        with pytest.raises(StartupError, match="is an older copy than its metadata"):
            ask(Belonging("x", 5, begun), InMetadata("x", 7))
    with pytest.raises(StartupError, match="does not say which metadata it belongs to"):
        ask(None, InMetadata("x", 7))


def test_the_grace_period_counts_what_was_seen_and_not_what_the_clock_says() -> None:
    first = look({}, {4, 2}, now_ms=1_000, elapsed_s=0, grace_s=100)
    assert (first.held, first.entered) == ({2: Held(1_000), 4: Held(1_000)}, [2, 4])
    # The clock jumps ahead by years, and the process starts anew: its first look adds nothing.
    second = look(first.held, {4, 2}, now_ms=10**13, elapsed_s=0, grace_s=100)
    assert (second.held, second.due, second.entered) == (first.held, [], [])
    third = look(second.held, {4}, now_ms=10**13, elapsed_s=99, grace_s=100)
    assert (third.left, third.due) == ([2], [])
    assert look(third.held, {4}, now_ms=0, elapsed_s=1, grace_s=100).due == [4]

"""The ways of a bundle through one broker, step by step and at random."""

from __future__ import annotations

import itertools
import zlib
from random import Random

import pytest

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.ownership import Ownership
from magnetar.broker.ownership.ownership_effects import Claim, Close, Delete, Effect
from magnetar.broker.ownership.states import TRANSITIONS, BundleState
from magnetar.broker.policies.bundles import LAST

NAMESPACE = NamespaceName("public", "default")
FIRST = Bundle(NAMESPACE, 0, 1 << 30)
SECOND = Bundle(NAMESPACE, 1 << 30, 1 << 31)


def owner(bundle: Bundle = FIRST) -> Ownership:
    ownership = Ownership()
    ownership.session_began(1)
    assert ownership.want(bundle) == [Claim(bundle, 1)]
    assert ownership.claimed(bundle, 1, alone=True) == []
    return ownership


def test_a_claim_makes_an_owner() -> None:
    ownership = owner()
    assert ownership.serves(FIRST)
    assert len(ownership) == 1
    assert ownership.want(FIRST) == []
    ownership.check()


def test_without_a_session_nothing_is_claimed() -> None:
    assert Ownership().want(FIRST) == []


def test_an_answer_to_a_claim_of_a_former_session_makes_no_owner() -> None:
    ownership = Ownership()
    ownership.session_began(1)
    ownership.want(FIRST)
    assert ownership.session_lost() == []
    ownership.session_began(2)
    assert ownership.claimed(FIRST, 1, alone=True) == []
    assert ownership.state(FIRST) is BundleState.UNOWNED
    ownership.want(FIRST)
    assert ownership.claimed(FIRST, 1, alone=True) == []
    assert ownership.state(FIRST) is BundleState.CLAIMING


def test_a_claim_that_something_overlaps_is_taken_back() -> None:
    ownership = Ownership()
    ownership.session_began(1)
    ownership.want(FIRST)
    assert ownership.claimed(FIRST, 1, alone=False) == [Delete(FIRST, 1)]
    assert not ownership.serves(FIRST)


def test_somebody_else_was_faster() -> None:
    ownership = Ownership()
    ownership.session_began(1)
    ownership.want(FIRST)
    ownership.not_claimed(FIRST, 1)
    assert ownership.state(FIRST) is BundleState.UNOWNED


def test_the_end_of_the_session_loses_everything() -> None:
    ownership = owner()
    assert ownership.session_lost() == [Close(FIRST, lost=True, to="")]
    assert not ownership.serves(FIRST)
    ownership.session_began(2)
    assert ownership.want(FIRST) == [], "its topics are not closed yet"
    assert ownership.closed(FIRST) == []
    assert ownership.want(FIRST) == [Claim(FIRST, 2)]


def test_the_record_goes_after_the_topics_are_closed() -> None:
    ownership = owner()
    assert ownership.release(FIRST, "other:8080") == [Close(FIRST, lost=False, to="other:8080")]
    assert not ownership.serves(FIRST)
    assert ownership.release(FIRST) == []
    assert ownership.closed(FIRST) == [Delete(FIRST, 1)]
    assert ownership.state(FIRST) is BundleState.RELEASING
    ownership.deleted(FIRST, 1)
    assert ownership.state(FIRST) is BundleState.UNOWNED


def test_a_record_that_is_gone_is_a_lost_bundle() -> None:
    ownership = owner()
    assert ownership.record_gone(FIRST, 1) == [Close(FIRST, lost=True, to="")]
    assert ownership.record_gone(FIRST, 1) == [], "it is being closed"
    ownership.closed(FIRST)
    assert ownership.state(FIRST) is BundleState.UNOWNED


def test_a_record_that_goes_while_its_topics_are_closed() -> None:
    ownership = owner()
    ownership.release(FIRST)
    assert ownership.record_gone(FIRST, 1) == [], "they are being closed already"
    assert ownership.closed(FIRST) == [], "there is nothing to delete"
    assert ownership.state(FIRST) is BundleState.UNOWNED


def test_the_session_ends_while_the_record_is_deleted() -> None:
    ownership = owner()
    ownership.release(FIRST)
    ownership.closed(FIRST)
    assert ownership.session_lost() == []
    assert ownership.state(FIRST) is BundleState.UNOWNED
    ownership.deleted(FIRST, 1)


def test_what_was_read_in_a_former_session_says_nothing() -> None:
    ownership = owner()
    ownership.session_lost()
    ownership.closed(FIRST)
    ownership.session_began(2)
    ownership.want(FIRST)
    ownership.claimed(FIRST, 2, alone=True)
    assert ownership.record_gone(FIRST, 1) == []
    assert ownership.serves(FIRST)


def test_two_owned_bundles_must_not_overlap() -> None:
    ownership = owner()
    both = Bundle(NAMESPACE, 0, 1 << 31)
    ownership.want(both)
    ownership.claimed(both, 1, alone=True)
    with pytest.raises(AssertionError, match="are both owned"):
        ownership.check()


def test_a_topic_is_found_in_the_one_bundle_that_has_it() -> None:
    ownership = Ownership()
    ownership.session_began(1)
    bounds = [*range(0, 1 << 32, 1 << 26), LAST]
    random = Random(7)
    bundles = [
        Bundle(NamespaceName("public", name), lower, upper)
        for name in ("a", "b", "c")
        for lower, upper in itertools.pairwise(bounds)
    ]
    random.shuffle(bundles)
    for bundle in bundles[::2]:
        ownership.want(bundle)
        ownership.claimed(bundle, 1, alone=True)
    for bundle in bundles[::6]:
        ownership.release(bundle)
    ownership.check()
    owned = set(ownership.having(BundleState.OWNED))
    assert len(ownership) == len(owned)
    topics = [TopicName.parse(f"public/{name}/t{number}") for name in "abcd" for number in range(300)]
    found = [ownership.has(topic) for topic in topics]
    assert found == [any(bundle.has(topic) for bundle in owned) for topic in topics]
    assert {True, False} == set(found)


def test_the_last_hash_is_in_the_last_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    ownership = owner(Bundle(NAMESPACE, 1 << 31, LAST))
    for place, is_there in (
        (LAST, True),
        (LAST - 1, True),
        (1 << 31, True),
        ((1 << 31) - 1, False),
        (0, False),
    ):
        monkeypatch.setattr(zlib, "crc32", lambda _, place=place: place)
        assert ownership.has(TopicName.parse("public/default/t")) is is_there


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_answers(seed: int) -> None:
    """Whatever comes when: every state follows from the one before, and each bundle can be had in the end."""
    random = Random(seed)
    ownership = Ownership()
    session = 0
    todo: list[Effect] = []
    states = {FIRST: BundleState.UNOWNED, SECOND: BundleState.UNOWNED}

    def look() -> None:
        ownership.check()
        for bundle, before in states.items():
            now = ownership.state(bundle)
            assert now is before or now in TRANSITIONS[before] or now is BundleState.UNOWNED
            states[bundle] = now

    def answer() -> None:
        effect = todo.pop(random.randrange(len(todo)))
        if isinstance(effect, Claim):
            if random.random() < 0.3:
                ownership.not_claimed(effect.bundle, effect.session)
            else:
                todo.extend(ownership.claimed(effect.bundle, effect.session, alone=random.random() < 0.8))
        elif isinstance(effect, Close):
            todo.extend(ownership.closed(effect.bundle))
        else:
            ownership.deleted(effect.bundle, effect.session)

    for _ in range(300):
        bundle = random.choice((FIRST, SECOND))
        match random.randrange(6):
            case 0 if not ownership.session:
                session += 1
                ownership.session_began(session)
            case 0 if random.random() < 0.2:
                todo += ownership.session_lost()
            case 1:
                todo += ownership.release(bundle)
            case 2:
                todo += ownership.record_gone(bundle, random.choice((session, session - 1)))
            case 3 | 4 if todo:
                answer()
            case _:
                todo += ownership.want(bundle)
        look()
    while todo:
        answer()
        look()
    if not ownership.session:
        ownership.session_began(session + 1)
    for bundle in states:
        for effect in ownership.want(bundle):
            assert isinstance(effect, Claim)
            ownership.claimed(bundle, effect.session, alone=True)
        assert ownership.serves(bundle)

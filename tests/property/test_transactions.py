"""The pure parts of transactions against simple models."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.transactions.acks import TxnAcks
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.outcomes import Outcomes
from magnetar.broker.transactions.spans import TransactionSpans
from magnetar.broker.transactions.stamp import stamped, transaction_of
from magnetar.broker.transactions.transaction import Transaction
from magnetar.managedlog.visible import Visible
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry, checksum_matches, split_entry

U64 = st.integers(0, (1 << 64) - 1)
POSITIONS = st.builds(Position, st.integers(0, 5), st.integers(0, 200))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5), st.booleans()), max_size=40), st.data())
def test_readers_get_what_is_committed_before_the_oldest_open_one(
    steps: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    # Owner of each entry: None for plain ones. State of each transaction: open, committed, aborted.
    spans, owners, states = TransactionSpans(), list[TxnId | None](), dict[TxnId, str]()
    seen_end = 0
    for number, count, plain in steps:
        txn = TxnId(0, number)
        if plain:
            owners += [None] * count
        elif states.get(txn, "open") == "open":
            states[txn] = "open"
            spans.appended(txn, Position(1, len(owners)), count)
            owners += [txn] * count
        if data.draw(st.booleans()):
            ending = [each for each, state in states.items() if state == "open"]
            if ending:
                chosen = data.draw(st.sampled_from(ending))
                if data.draw(st.booleans()):
                    states[chosen] = "committed"
                    spans.committed(chosen)
                else:
                    states[chosen] = "aborted"
                    spans.aborted(chosen)
        spans.check()
        opens = [at for at, owner in enumerate(owners) if owner is not None and states[owner] == "open"]
        end = min(opens, default=len(owners))
        # The place up to which readers come never moves back.
        assert end >= seen_end
        seen_end = end
        if not owners:
            continue
        expected = [
            at
            for at in range(end)
            if owners[at] is None or states[owners[at]] == "committed"  # type: ignore[index]  # it is not None there
        ]
        run = EntryRun(1, 0, [b"%d" % at for at in range(len(owners))], None, 0, 0)
        shown = spans.visible.shown([run])
        assert [int(entry) for each in shown for entry in each.entries] == expected
        for each in shown:
            assert [int(entry) for entry in each.entries] == list(
                range(each.first_entry, each.last_entry + 1)
            )


@given(st.sets(st.integers(0, 3_000), max_size=60), st.integers(0, 3_000))
def test_hidden_entries_are_passed_over_both_ways(hidden: set[int], at: int) -> None:
    visible = Visible()
    for entry in hidden:
        visible.hide(7, entry, entry)
    behind = visible.behind(Position(7, at)).entry_id
    assert behind not in hidden
    assert all(entry in hidden for entry in range(at, behind))
    found = visible.hidden_from(Position(7, at))
    if at not in hidden:
        assert found is None
    else:
        assert found is not None
        assert all(entry in hidden for entry in range(found.entry_id, at + 1))
        assert found.entry_id - 1 not in hidden


TOPIC = "persistent://public/default/t"
TOPICS = st.text("aZ0-_.é|\\ ", min_size=1, max_size=20).map(lambda name: f"persistent://t/n/x{name}")


@given(
    st.sets(POSITIONS, max_size=30),
    st.dictionaries(
        POSITIONS,
        st.integers(1, 200).flatmap(lambda size: st.tuples(st.integers(0, (1 << size) - 1), st.just(size))),
        max_size=10,
    ),
    st.none() | POSITIONS,
    st.sampled_from([None, (5, 3), (0, 1)]),
    st.text(max_size=10),
    st.dictionaries(TOPICS, st.none() | POSITIONS, max_size=5),
)
def test_a_header_comes_back_as_it_was(
    whole: set[Position],
    parts: dict[Position, tuple[int, int]],
    upto: Position | None,
    upto_part: tuple[int, int] | None,
    owner: str,
    partitions: dict[str, Position | None],
) -> None:
    txn = Transaction(TxnId(3, 4), owner=owner, ttl_ms=5, started_ms=6, deadline_ms=7)
    txn.partitions = partitions
    acks = TxnAcks()
    acks.whole, acks.parts, acks.upto = whole, parts, upto
    acks.upto_part = None if upto is None else upto_part
    txn.acks = {TOPIC: {"s": acks}}
    found = Transaction(TxnId(3, 4), owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
    found.read(txn.header(), 9)
    assert (found.owner, found.ttl_ms, found.started_ms, found.state) == (owner, 5, 6, TxnState.OPEN)
    assert found.partitions == partitions
    kept = found.acks[TOPIC]["s"]
    assert (kept.whole, kept.parts, kept.upto, kept.upto_part) == (whole, parts, upto, acks.upto_part)
    assert found.header() == txn.header()


@given(st.dictionaries(st.integers(0, 5_000), st.sampled_from([TxnState.COMMITTED, TxnState.ABORTED])))
def test_outcomes_are_told_again(ended: dict[int, TxnState]) -> None:
    outcomes = Outcomes()
    pages = outcomes.add(ended.items())
    again = Outcomes()
    for number in pages:
        again.read(number, outcomes.page(number))
    for sequence in range(5_001):
        assert again.of(sequence) is ended.get(sequence)


@given(st.binary(max_size=50), U64, U64, st.booleans(), st.binary(max_size=4))
def test_an_entry_names_the_transaction_that_it_is_stamped_with(
    payload: bytes, most: int, least: int, other: bool, value: bytes
) -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    if other:
        metadata.txnid_most_bits, metadata.txnid_least_bits = 8, 9
    metadata.properties.add(key="k", value=value.hex())
    entry = stamped(build_entry(metadata, payload), TxnId(most, least))
    assert transaction_of(entry) == (most, least)
    assert checksum_matches(entry)
    assert bytes(split_entry(entry).payload) == payload

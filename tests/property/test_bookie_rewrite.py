"""Random ledgers, deletions, rewrites and restarts of a store against a plain dictionary."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.bookie import store_metrics
from magnetar.bookie.appender import LedgerAppender
from magnetar.observability.metrics import Exposition
from support.storage import Sink, crash_copy, entries_of, settled, store_in

LEDGERS = 4

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, LEDGERS - 1), st.integers(1, 6)),
        st.tuples(st.just("delete"), st.integers(0, LEDGERS - 1), st.just(0)),
        st.tuples(st.just("rewrite"), st.just(0), st.just(0)),
        st.tuples(st.just("sort"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.booleans(), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


@given(steps)
@settings(max_examples=40, deadline=None)
def test_rewriting_changes_nothing_that_can_be_read(story: list[tuple[str, int, int]]) -> None:
    async def run(root: Path) -> None:
        model: dict[int, list[bytes]] = {}
        following = 0
        folder, at, restarts, which = root / "0", 0, 0, 0
        while at < len(story):
            async with store_in(
                folder,
                segment_bytes=32 << 10,
                rewrite_bytes_per_s=1 << 40,
                rewrite_below=0.9,
                rewrite_bytes_below=1.0,
                sort_after_reads=1,
            ) as store:
                # Appended before the restart: closed now.
                writers: list[tuple[LedgerAppender, Sink]] = []
                for _ in range(LEDGERS):
                    sink = Sink()
                    writers.append((store.appender(following, sink), sink))
                    following += 1
                while at < len(story):
                    kind, which, count = story[at]
                    at += 1
                    if kind == "append":
                        appender, sink = writers[which]
                        entries = model.setdefault(appender.ledger_id, [])
                        new = [b"%d:%d:" % (appender.ledger_id, len(entries) + i) for i in range(count)]
                        entries += [(body * 300)[:2000] for body in new]
                        appender.append(entries[-count:], None, 0, 1)
                        await sink.reached(len(entries) - 1)
                    elif kind == "delete" and model:
                        ledger_id = sorted(model)[which % len(model)]
                        del model[ledger_id]
                        await store.delete(ledger_id)
                        for i, (appender, _) in enumerate(writers):
                            if appender.ledger_id == ledger_id:
                                sink = Sink()
                                writers[i] = store.appender(following, sink), sink
                                following += 1
                    elif kind in ("rewrite", "sort"):
                        for segment in store.segments if kind == "sort" else ():
                            segment.scattered_reads = 1
                        while await store.rewriter.rewrite_one():
                            pass
                    elif kind == "restart":
                        break
                    for ledger_id, entries in model.items():
                        assert await entries_of(store, ledger_id) == entries
                    assert store.ledger_ids() == set(model)
                exposition = Exposition(series_max=100)
                list(store_metrics.collect((store,), exposition))
                assert "magnetar_segments_rewritten_total" in exposition.render()
                restarts += 1
                if which:
                    await settled(store)
                    folder = crash_copy(folder, root / f"{restarts}")
        async with store_in(folder) as store:
            for ledger_id, entries in model.items():
                assert await entries_of(store, ledger_id) == entries
            assert store.ledger_ids() == set(model)

    with tempfile.TemporaryDirectory() as root:
        asyncio.run(run(Path(root)))

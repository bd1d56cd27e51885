"""Doubts about metadata add up, and each source takes back its own."""

from __future__ import annotations

from magnetar.metadata.trust import MetadataTrust


def test_metadata_is_believed_when_no_source_doubts_it() -> None:
    trust = MetadataTrust()
    assert trust.is_trusted
    assert trust.doubt is None
    trust.doubted("identity", "restored from an older copy")
    trust.doubted("check", "row /a is damaged")
    assert not trust.is_trusted
    assert trust.doubt == "restored from an older copy; row /a is damaged"
    trust.cleared("identity")
    assert trust.doubt == "row /a is damaged"
    trust.cleared("check")
    trust.cleared("check")
    assert trust.is_trusted

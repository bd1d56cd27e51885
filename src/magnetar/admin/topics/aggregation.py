"""Aggregates the statistics of a topic's partitions. Pure."""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Document


def aggregate(documents: list[Document]) -> Document:
    """Adds the numbers of all partitions; merges producers and subscriptions of the same name."""
    total: Document = {
        "publishers": [],
        "subscriptions": {},
        "replication": {},
        "deduplicationStatus": documents[0]["deduplicationStatus"] if documents else "Disabled",
    }
    publishers: dict[str, Document] = {}
    for document in documents:
        _add(total, document)
        for publisher in document["publishers"]:
            known = publishers.setdefault(publisher["producerName"], {})
            _add(known, publisher)
            known.update((key, value) for key, value in publisher.items() if key not in known)
        for name, subscription in document["subscriptions"].items():
            merged = total["subscriptions"].setdefault(name, {"consumers": []})
            _add(merged, subscription)
            merged["consumers"].extend(subscription["consumers"])
            for key in _OF_ANY_PART.intersection(subscription):
                merged[key] = subscription[key]
    total["publishers"] = list(publishers.values())
    for counted in (total, *publishers.values()):
        if counted.get("msgRateIn"):
            counted["averageMsgSize"] = counted["msgThroughputIn"] / counted["msgRateIn"]
    return total


_OF_ANY_PART: Final = frozenset({"type", "keySharedMode", "activeConsumerName", "subscriptionProperties"})
"""Fields that are usually equal in all partitions."""

_LARGEST_WINS: Final = frozenset(
    {
        "lastPublishTimeStamp",
        "lastPublishTimestamp",
        "producerId",
        "lastExpireTimestamp",
        "lastMarkDeleteAdvancedTimestamp",
        "lastConsumedFlowTimestamp",
        "lastConsumedTimestamp",
        "lastAckedTimestamp",
    }
)
"""Fields whose largest value counts."""

_SMALLEST_WINS: Final = frozenset(
    {"topicCreationTimeStamp", "earliestMsgPublishTimeInBacklog", "earliestMsgPublishTimeInBacklogs"}
)
"""Times whose smallest value counts."""


def _add(total: Document, document: Document) -> None:
    for key, value in document.items():
        if isinstance(value, bool):
            total[key] = total.get(key, False) or value
        elif isinstance(value, (int, float)):
            known = total.get(key)
            if known is None or key in _LARGEST_WINS:
                total[key] = value if known is None else max(known, value)
            elif key in _SMALLEST_WINS:
                # 0 and -1 say that there is none.
                total[key] = min(known, value) if min(known, value) > 0 else max(known, value)
            else:
                total[key] = known + value if known >= 0 and value >= 0 else max(known, value)

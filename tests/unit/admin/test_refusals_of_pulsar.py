"""What Pulsar 4.2.4 refuses is refused likewise: answers of its standalone, recorded on 23 November 2026.

A line of `refusals_of_pulsar.jsonl` is a status, a reason, a method, a body and the paths that got them. The
reason is null where Pulsar names classes of Java: only the status is compared then. What is answered
otherwise on purpose stands in docs/compatibility/refusals.md.
"""

from __future__ import annotations

import json
from pathlib import Path

from magnetar.broker.config import BrokerConfig
from support.admin_api import AdminApi, with_api

_RECORDED = Path(__file__).parent / "refusals_of_pulsar.jsonl"
_V2 = "/admin/v2"


async def _as_it_was_recorded(api: AdminApi) -> None:
    await api.done("PUT", f"{_V2}/tenants/t1", {"allowedClusters": ["standalone"], "adminRoles": []})
    await api.done("PUT", f"{_V2}/namespaces/t1/ns")
    for domain in ("persistent", "non-persistent"):
        await api.done("PUT", f"{_V2}/{domain}/t1/ns/t")
        await api.done("PUT", f"{_V2}/{domain}/t1/ns/p/partitions", 3)
    for topic in ("t", "p"):
        await api.done("PUT", f"{_V2}/persistent/t1/ns/{topic}/subscription/s", {})


def test_what_pulsar_refuses_is_refused_with_its_status_and_its_words() -> None:
    lines = [json.loads(line) for line in _RECORDED.read_text().splitlines()]
    compared = sum(len(line["paths"]) for line in lines)
    assert compared > 2_000

    async def story(api: AdminApi) -> None:
        await _as_it_was_recorded(api)
        wrong = []
        for line in lines:
            body = None if line["body"] is None else line["body"].encode()
            for path in line["paths"]:
                answer = await api.call(line["method"], path, body)
                if answer.status != line["status"] or line["reason"] not in (None, answer.reason):
                    wrong.append(
                        (line["method"], path, line["body"], answer.status, answer.body, line["reason"])
                    )
        assert not wrong, wrong[:20]

    with_api(story, config=BrokerConfig(cluster="standalone"))

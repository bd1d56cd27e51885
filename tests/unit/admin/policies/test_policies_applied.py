"""`?applied=true`: the topic's own, else its namespace's, else the broker's, for every declared policy."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.admin.policies import kinds, policy_documents
from magnetar.admin.policies.declared import Policy, PolicyKind
from magnetar.admin.policies.table import POLICIES
from support.admin_api import AdminApi, T, with_api

N = "/admin/v2/namespaces/public/default"

VALUES: dict[int, tuple[Any, Any]] = {
    id(kind): values
    for kind, values in (
        (kinds.BOOLEAN, (True, False)),
        # Setting it is switching it on, whatever the body says.
        (kinds.SWITCH, (True, True)),
        (kinds.TYPES, (["Shared"], ["Exclusive"])),
        (kinds.NUMBER, (7, 3)),
        (kinds.INTERVAL, (70, 30)),
        (kinds.TTL, (70, 30)),
        (kinds.MAX_AGE, (300, 60)),
        (kinds.BYTES, (7_000, 3_000)),
        (policy_documents.PUBLISH, ({"publishThrottlingRateInMsg": 7}, {"publishThrottlingRateInMsg": 3})),
        (policy_documents.DISPATCH, ({"dispatchThrottlingRateInMsg": 7}, {"dispatchThrottlingRateInMsg": 3})),
        (
            policy_documents.SUBSCRIBE,
            ({"subscribeThrottlingRatePerConsumer": 7}, {"subscribeThrottlingRatePerConsumer": 3}),
        ),
        (
            policy_documents.RETENTION,
            (
                {"retentionTimeInMinutes": 7, "retentionSizeInMB": 7},
                {"retentionTimeInMinutes": 3, "retentionSizeInMB": 3},
            ),
        ),
        (
            policy_documents.INACTIVE_TOPICS,
            (
                {
                    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                    "maxInactiveDurationSeconds": 70,
                    "deleteWhileInactive": True,
                },
                {
                    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                    "maxInactiveDurationSeconds": 30,
                    "deleteWhileInactive": False,
                },
            ),
        ),
        (
            policy_documents.SUBSCRIPTION_CREATION,
            ({"allowAutoSubscriptionCreation": False}, {"allowAutoSubscriptionCreation": True}),
        ),
        # Without installed ones there is one filter to choose.
        (
            policy_documents.ENTRY_FILTERS,
            ({"entryFilterNames": "expression"}, {"entryFilterNames": "expression"}),
        ),
        (
            policy_documents.DELAYED_DELIVERY,
            ({"active": True, "tickTime": 7}, {"active": False, "tickTime": 3}),
        ),
        (
            policy_documents.PERSISTENCE,
            tuple(
                {
                    "bookkeeperEnsemble": 1,
                    "bookkeeperWriteQuorum": 1,
                    "bookkeeperAckQuorum": 1,
                    "managedLedgerMaxMarkDeleteRate": float(rate),
                }
                for rate in (7, 3)
            ),
        ),
    )
}
"""Two values of each type: of the namespace, of the topic."""

BOTH = [policy for policy in POLICIES if policy.of_namespace is not None and policy.of_topic is not None]


def contains(found: Any, value: Any) -> bool:
    """Whether what was answered is the value, with whatever defaults are filled in."""
    if isinstance(value, dict):
        return isinstance(found, dict) and all(found.get(key) == part for key, part in value.items())
    return bool(found == value)


@pytest.mark.parametrize("policy", BOTH, ids=lambda policy: policy.of_topic)
def test_the_narrowest_level_that_says_something_applies(policy: Policy) -> None:
    kind: PolicyKind = policy.kind
    of_namespace, of_topic = VALUES[id(kind)]

    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        path = f"{T}/t/{policy.of_topic}"

        async def applied() -> Any:
            answer = await api.call("GET", f"{path}?applied=true")
            return answer.json if answer.status == 200 else None

        before = await applied()
        await api.done("PUT" if policy.put else "POST", f"{N}/{policy.of_namespace}", of_namespace)
        assert contains(await applied(), of_namespace)
        await api.done("POST", path, of_topic)
        assert contains(await applied(), of_topic)
        own = await api.call("GET", path)
        assert contains(own.json, of_topic)
        await api.done("DELETE", path)
        assert contains(await applied(), of_namespace)
        await api.done("DELETE", f"{N}/{policy.of_namespace}")
        assert await applied() == before

    with_api(story)

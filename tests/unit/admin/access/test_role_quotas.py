"""Calls beyond what their role may use are answered 429, and told when to come back."""

from __future__ import annotations

import pytest

from magnetar.auth.authentication import Authentication, Provider
from magnetar.auth.identity import Credentials, Identity
from magnetar.broker.config import BrokerConfig
from magnetar.broker.limits.tenants import TenantLimits
from support.admin_api import AdminApi, with_api

TENANTS = "/admin/v2/tenants"
VERSION = "/admin/v2/brokers/version"


class ByName:
    """Believes what it is told."""

    slow = False

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        return Identity(credentials.data.decode())


PROVIDERS: dict[str, Provider] = {"token": ByName()}


def test_calls_are_commands_of_their_role() -> None:
    async def story(api: AdminApi) -> None:
        async def status_of(role: str) -> int:
            headers = {"Authorization": f"Bearer {role}"}
            answer = await api.call("GET", TENANTS, headers=headers)
            return int(answer.status)

        assert [await status_of("root") for _ in range(5)] == [200, 200, 200, 429, 429]
        answer = await api.call("GET", TENANTS, headers={"Authorization": "Bearer root"})
        assert answer.headers["retry-after"] == "1"
        assert answer.reason.startswith("root has used")
        # Its commands on connections are of the same bucket, and those of other roles are not.
        assert api.broker.quotas.count("root", 0) > 0
        assert await status_of("other") == 200
        assert (await api.call("GET", "/admin/v2/brokers/ready")).status == 200
        api.clock.advance(1_000)
        assert await status_of("root") == 200

    with_api(
        story,
        config=BrokerConfig(tenants=TenantLimits(commands_per_second_per_role=3)),
        authentication=Authentication(PROVIDERS, ""),
        superuser_roles=frozenset(("root", "other")),
    )


def test_calls_take_time_of_their_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(api: AdminApi) -> None:
        async def dear() -> list[str]:
            api.clock.advance(400)
            return []

        monkeypatch.setattr(api.broker.policies, "tenants", dear)
        assert (await api.call("GET", TENANTS)).status == 200
        answer = await api.call("GET", TENANTS)
        assert answer.status == 429
        assert answer.headers["retry-after"] == "2"
        api.clock.advance(900)
        assert (await api.call("GET", VERSION)).status == 429
        assert (await api.call("GET", "/status.html")).status == 200
        api.clock.advance(200)
        assert (await api.call("GET", VERSION)).status == 200

    with_api(story, config=BrokerConfig(tenants=TenantLimits(loop_percent_per_role=20)))

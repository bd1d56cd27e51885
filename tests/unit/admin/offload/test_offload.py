"""Offloading through the admin API: Pulsar's paths, bodies and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from magnetar.base.ids import Position
from magnetar.tiered.policy import OffloadPolicy
from support.admin_api import AdminApi, T, with_api

N = "/admin/v2/namespaces/public/default"


async def filled(api: AdminApi) -> list[Position]:
    """Ten entries of a topic that goes on in a new ledger after each four."""
    await api.done("POST", f"{N}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    positions = []
    for number in range(10):
        positions += await api.publish("persistent://public/default/t", b"%d" % number)
        # The log goes on in its new ledger before the next entry comes.
        await api.tasks.drain(10)
    return positions


def test_on_request(tmp_path: Path) -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{N}/offloadThreshold", -1)
        positions = await filled(api)
        assert await api.get(f"{T}/t/offload") == {
            "status": "NOT_RUN",
            "lastError": "",
            "firstUnoffloadedMessage": None,
        }
        last = {"ledgerId": positions[-1].ledger_id, "entryId": 0, "partitionIndex": -1}
        await api.done("PUT", f"{T}/t/offload", last)
        assert (await api.refused("PUT", f"{T}/t/offload", last))[0] == 409
        assert (await api.get(f"{T}/t/offload"))["status"] == "RUNNING"
        answer = await offloaded(api)
        assert (answer["status"], answer["firstUnoffloadedMessage"]) == ("SUCCESS", last)
        internal = await api.get(f"{T}/t/internalStats")
        assert [ledger["offloaded"] for ledger in internal["ledgers"]] == [True, True, False]
        assert internal["ledgers"][0]["offloadedTo"]["onlyCopy"] is False
        (segment,) = internal["ledgers"][0]["offloadedTo"]["segments"]
        assert segment["firstEntry"] == 0
        assert segment["name"].endswith(f"-{segment['lastEntry']:019d}.parquet")
        assert internal["totalSize"] == sum(ledger["size"] for ledger in internal["ledgers"])
        stats = await api.get(f"{T}/t/stats")
        assert stats["offloadedStorageSize"] == sum(ledger["size"] for ledger in internal["ledgers"][:2])
        assert stats["storageSize"] == internal["totalSize"]
        info = await api.get(f"{T}/t/internal-info")
        assert [ledger["isOffloaded"] for ledger in info["ledgers"]] == [True, True, False]

    with_api(story, work_dir=tmp_path)


async def offloaded(api: AdminApi) -> Any:
    """The status once nothing is under way."""
    await api.tasks.drain(10)
    return await api.get(f"{T}/t/offload")


def test_a_request_that_fails_says_why(tmp_path: Path) -> None:
    async def story(api: AdminApi) -> None:
        assert api.tiering is not None
        positions = await filled(api)
        api.tiering.worker.refusal = "pyarrow is not installed"
        await api.done("PUT", f"{T}/t/offload", {"ledgerId": positions[-1].ledger_id, "entryId": 0})
        answer = await offloaded(api)
        assert answer["status"] == "ERROR"
        assert "pyarrow is not installed" in answer["lastError"]
        assert (await api.refused("PUT", f"{T}/t/offload", 5))[0] == 400
        await api.done("PUT", f"{T}/p/partitions", 2)
        assert (await api.refused("PUT", f"{T}/p/offload", {"ledgerId": 1, "entryId": 0}))[0] == 405
        assert (await api.refused("GET", f"{T}/none/offload"))[0] == 404

    with_api(story, work_dir=tmp_path)


def test_thresholds_of_a_namespace(tmp_path: Path) -> None:
    async def story(api: AdminApi) -> None:
        assert await api.get(f"{N}/offloadThreshold") == -1
        assert await api.get(f"{N}/offloadThresholdInSeconds") == -1
        assert (await api.call("GET", f"{N}/offloadDeletionLagMs")).status == 204
        await api.done("PUT", f"{N}/offloadThreshold", 1 << 40)
        await api.done("PUT", f"{N}/offloadThresholdInSeconds", "3600")
        await api.done("PUT", f"{N}/offloadDeletionLagMs", 5)
        assert await policy(api) == OffloadPolicy(1 << 40, 3600, 5)
        await api.done("POST", f"{N}/offloadPolicies", {"managedLedgerOffloadThresholdInBytes": 7})
        assert await api.get(f"{N}/offloadThreshold") == 7
        await api.done("PUT", f"{N}/offloadThreshold", 8)
        assert (await api.get(f"{N}/offloadPolicies"))["managedLedgerOffloadThresholdInBytes"] == 8
        await api.done("DELETE", f"{N}/offloadDeletionLagMs")
        assert await policy(api) == OffloadPolicy(8, 3600, 0)
        await api.done("DELETE", f"{N}/removeOffloadPolicies")
        assert await policy(api) == OffloadPolicy(deletion_lag_ms=0)
        for body in ("x", True, [], 1 << 63):
            assert (await api.refused("PUT", f"{N}/offloadThreshold", body))[0] == 400

    with_api(story, work_dir=tmp_path)


async def policy(api: AdminApi) -> OffloadPolicy:
    applied = await api.get(f"{T}/t/offloadPolicies?applied=true")
    return OffloadPolicy(deletion_lag_ms=0).under({"offload_policies": applied}, await document(api))


async def document(api: AdminApi) -> Any:
    return await api.get(N)


def test_a_topics_policies_come_first(tmp_path: Path) -> None:
    async def story(api: AdminApi) -> None:
        await api.topic("persistent://public/default/t")
        await api.done("PUT", f"{N}/offloadThreshold", 1000)
        assert (await api.call("GET", f"{T}/t/offloadPolicies")).status == 204
        applied = await api.get(f"{T}/t/offloadPolicies?applied=true")
        assert applied["managedLedgerOffloadThresholdInBytes"] == 1000
        given = {
            "offloadersDirectory": "./offloaders",
            "managedLedgerOffloadDriver": "magnetar-parquet",
            "managedLedgerOffloadThresholdInBytes": 5,
            "managedLedgerOffloadDeletionLagInMillis": None,
        }
        await api.done("POST", f"{T}/t/offloadPolicies", given)
        assert (await api.get(f"{T}/t/offloadPolicies"))["managedLedgerOffloadThresholdInBytes"] == 5
        await api.done("DELETE", f"{T}/t/offloadPolicies")
        assert (await api.call("GET", f"{T}/t/offloadPolicies")).status == 204

    with_api(story, work_dir=tmp_path)


def test_policies_of_another_store_are_kept_and_copy_nothing(tmp_path: Path) -> None:
    """As Pulsar's tools send them; a copy in a place that no policy named would never be found."""

    async def story(api: AdminApi) -> None:
        await api.topic("t")
        given = {
            "offloadersDirectory": "./offloaders",
            "managedLedgerOffloadDriver": "aws-s3",
            "s3ManagedLedgerOffloadRegion": "eu-west-1",
            "s3ManagedLedgerOffloadBucket": "theirs",
            "managedLedgerExtraConfigurations": {},
            "managedLedgerOffloadThresholdInBytes": 0,
            "managedLedgerOffloadedReadPriority": "TIERED_STORAGE_FIRST",
            "s3ManagedLedgerOffloadRole": None,
        }
        await api.done("POST", f"{N}/offloadPolicies", given)
        assert await api.get(f"{N}/offloadPolicies") == {
            name: value for name, value in given.items() if value is not None
        }
        assert api.broker.offloading is not None
        assert api.broker.offloading.policy_of({}, await document(api)) == OffloadPolicy(-1, -1, -1)
        answer = await api.call("PUT", f"{T}/t/offload", "latest")
        assert (answer.status, answer.reason) == (412, "the offload policies name the driver aws-s3")
        # A topic's own, for the store that there is, comes first.
        await api.done("POST", f"{T}/t/offloadPolicies", {"managedLedgerOffloadDriver": "magnetar-parquet"})
        await api.done("PUT", f"{T}/t/offload", "latest")

    with_api(story, work_dir=tmp_path)


def test_credentials_and_what_is_no_driver_are_refused(tmp_path: Path) -> None:
    async def story(api: AdminApi) -> None:
        body = {"s3ManagedLedgerOffloadCredentialSecret": "very secret"}
        status, reason = await api.refused("POST", f"{N}/offloadPolicies", body)
        assert status == 412
        assert "very secret" not in reason
        status, reason = await api.refused(
            "POST", f"{N}/offloadPolicies", {"managedLedgerOffloadDriver": "x"}
        )
        assert status == 412
        assert reason.startswith("The driver is not supported, support value: S3,aws-s3,")
        assert await api.refused("POST", f"{N}/offloadPolicies") == (
            412,
            "The offloadPolicies must be specified for namespace offload.",
        )
        assert (await api.refused("POST", f"{N}/offloadPolicies", [1]))[0] == 400

    with_api(story, work_dir=tmp_path)


def test_a_maximum_age_is_a_policy_of_both_levels(tmp_path: Path) -> None:
    async def story(api: AdminApi) -> None:
        await api.publish("persistent://public/default/t", b"x")
        age = f"{N}/offloadMaxAgeInSeconds"
        assert await api.get(f"{T}/t/offloadMaxAgeInSeconds?applied=true") == 0
        await api.done("POST", age, 300)
        assert await api.get(f"{T}/t/offloadMaxAgeInSeconds?applied=true") == 300
        for refused in (59, -1):
            status, reason = await api.refused("POST", age, refused)
            assert status == 412
            assert "at least 60" in str(reason)
        await api.done("POST", f"{T}/t/offloadMaxAgeInSeconds", 0)
        assert await api.get(f"{T}/t/offloadMaxAgeInSeconds?applied=true") == 0
        assert api.broker.offloading is not None
        log = (await api.topic("persistent://public/default/t")).log.offloading
        assert api.broker.offloading.lag_ms(log) is None
        await api.done("DELETE", f"{T}/t/offloadMaxAgeInSeconds")
        assert api.broker.offloading.lag_ms(log) == 0, "in force when the call returns"
        await api.done("DELETE", age)
        assert api.broker.offloading.lag_ms(log) is None

    with_api(story, work_dir=tmp_path)

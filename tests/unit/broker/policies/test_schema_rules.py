"""Which producers and consumers a topic with a schema takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar.base.names import NamespaceName
from magnetar.broker.policies.schema_rules import SchemaRules
from magnetar.schemas.compatibility import Strategy
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import TOPIC, Peer, World, in_world


def avro(*fields: str) -> pb.Schema:
    made = ",".join(f'{{"name":"{name}","type":"int"}}' for name in fields)
    data = f'{{"type":"record","name":"R","fields":[{made}]}}'
    return pb.Schema(name="t", type=pb.Schema.Type.Avro, schema_data=data.encode())


AUTO_CONSUME = pb.Schema(name="t", type=pb.Schema.Type.AutoConsume, schema_data=b"")


async def set_policy(world: World, **policies: Any) -> None:
    namespace = NamespaceName.parse("public/default")
    await world.broker.policies.update_namespace(namespace, lambda document: document.update(policies))


def tried(peer: Peer) -> Callable[..., Any]:
    """Opens a producer or consumer with new ids; its error code, None when it was taken."""
    ids = iter(range(100, 200))

    async def one(kind: str, schema: pb.Schema | None = None) -> int | None:
        number = next(ids)
        more = {} if schema is None else {"schema": schema}
        if kind == "producer":
            answer = await peer.producer(number, request_id=number, **more)
        else:
            answer = await peer.consumer(number, request_id=number, subscription=f"s{number}", **more)
        return answer.error if isinstance(answer, pb.CommandError) else None

    return one


def test_producers_follow_the_strategy() -> None:
    async def story(world: World) -> None:
        attempt = tried(world.peer())
        assert await attempt("producer", avro("a")) is None
        assert await attempt("producer", avro("a", "b")) == pb.IncompatibleSchema
        await set_policy(world, schema_compatibility_strategy="FORWARD")
        assert await attempt("producer", avro("a", "b")) is None
        assert await attempt("producer", avro("a")) is None
        assert await attempt("producer", avro("c")) == pb.IncompatibleSchema

    in_world(story)


def test_refusals_name_field_and_rule() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(schema=avro("a"))
        answer = await peer.producer(2, request_id=2, schema=avro("a", "b"))
        assert "field R.b has no default value" in answer.message
        assert "strategy FULL" in answer.message

    in_world(story)


def test_consumers_must_read_what_exists() -> None:
    async def story(world: World) -> None:
        attempt = tried(world.peer())
        assert await attempt("consumer", avro("a", "b")) is None
        assert await attempt("consumer", avro("a")) is None
        assert await attempt("consumer", avro("a", "c")) == pb.IncompatibleSchema
        assert await attempt("consumer", AUTO_CONSUME) is None
        assert await attempt("consumer") is None
        assert len(await world.broker.schemas.versions((await world.topic()).name)) == 1

    in_world(story)


def test_producers_without_a_schema_are_refused_when_validation_is_enforced() -> None:
    async def story(world: World) -> None:
        attempt = tried(world.peer())
        await set_policy(world, schema_validation_enforced=True)
        assert await attempt("producer") is None
        assert await attempt("producer", avro("a")) is None
        assert await attempt("producer") == pb.IncompatibleSchema
        await set_policy(world, schema_validation_enforced=False)
        assert await attempt("producer") is None

    in_world(story)


def test_a_producer_that_names_its_bytes_gets_a_version_where_there_is_no_other_schema() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        named = pb.Schema(name="Bytes", type="None", schema_data=b"")
        assert (await peer.producer(1, request_id=1, schema=named)).schema_version == bytes(8)
        assert (await peer.producer(2, request_id=2, schema=named)).schema_version == bytes(8)
        assert (await peer.producer(3, request_id=3)).schema_version == b""
        other = TOPIC + "-avro"
        await peer.producer(4, topic=other, request_id=4, schema=avro("a"))
        assert (await peer.producer(5, topic=other, request_id=5, schema=named)).schema_version == b""

    in_world(story)


def test_clients_add_no_schemas_when_auto_update_is_off() -> None:
    async def story(world: World) -> None:
        attempt = tried(world.peer())
        await set_policy(world, is_allow_auto_update_schema=False)
        assert await attempt("producer", avro("a")) == pb.IncompatibleSchema
        await world.broker.schemas.add((await world.topic(TOPIC)).name, avro("a"))
        assert await attempt("producer", avro("a")) is None

    in_world(story)


def test_topics_override_their_namespace() -> None:
    rules = SchemaRules.of(
        {"schema_compatibility_strategy": "BACKWARD"},
        {"schema_compatibility_strategy": "FULL", "schema_validation_enforced": True},
    )
    assert rules == SchemaRules(Strategy.BACKWARD, validation_enforced=True)
    assert SchemaRules.of({}, {"schema_compatibility_strategy": "odd"}) == SchemaRules()


def test_a_topics_strategy_undefined_does_not_hide_its_namespaces() -> None:
    undefined = {"schema_compatibility_strategy": "UNDEFINED"}
    assert (
        SchemaRules.of(undefined, {"schema_compatibility_strategy": "FORWARD"}).strategy is Strategy.FORWARD
    )
    older = {"schema_auto_update_compatibility_strategy": "Backward"}
    assert SchemaRules.of(undefined, {**undefined, **older}).strategy is Strategy.BACKWARD
    assert SchemaRules.of(undefined, {}, SchemaRules(Strategy.FULL)).strategy is Strategy.FULL


def test_a_brokers_default_holds_where_policies_say_nothing() -> None:
    default = SchemaRules(
        strategy=Strategy.BACKWARD_TRANSITIVE, auto_update_allowed=False, validation_enforced=True
    )
    assert SchemaRules.of({}, {}, default) == default
    own = SchemaRules.of(
        {"schema_compatibility_strategy": "FORWARD", "schema_validation_enforced": False},
        {"is_allow_auto_update_schema": True},
        default,
    )
    assert own == SchemaRules(strategy=Strategy.FORWARD, auto_update_allowed=True, validation_enforced=True)

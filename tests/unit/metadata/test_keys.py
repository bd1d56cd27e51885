"""Keys are Pulsar's."""

from __future__ import annotations

from magnetar.base.names import NamespaceName, TopicName
from magnetar.metadata import keys


def test_paths() -> None:
    namespace = NamespaceName("public", "default")
    topic = TopicName.parse("public/default/a b-partition-1")
    assert keys.cluster("standalone") == "/admin/clusters/standalone"
    assert keys.tenant("public") == "/admin/policies/public"
    assert keys.namespace_policies(namespace) == "/admin/policies/public/default"
    assert keys.local_policies(namespace) == "/admin/local-policies/public/default"
    assert keys.partitioned_topic(topic.base) == "/admin/partitioned-topics/public/default/persistent/a+b"
    assert (
        keys.cursor(topic.log_name, "my/sub")
        == "/managed-ledgers/public/default/persistent/a+b-partition-1/my%2Fsub"
    )
    assert keys.decode_child("my%2Fsub") == "my/sub"
    assert keys.managed_ledgers(namespace) == "/managed-ledgers/public/default/persistent"
    assert (
        keys.partitioned_topics(namespace, "non-persistent")
        == "/admin/partitioned-topics/public/default/non-persistent"
    )
    assert keys.schema(topic) == "/schemas/public/default/a+b"
    bundle = keys.bundle(0, 0x40000000)
    assert bundle == "0x00000000_0x40000000"
    assert keys.broker("localhost:8080") == "/loadbalance/brokers/localhost:8080"

"""Transcripts of one client of the proxy: CONNECT, questions, and the broker that it names."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.auth.identity import Credentials, Identity
from magnetar.broker.session.greetings import CONNECT_BYTES_MAX
from magnetar.proxy.client_states import ClientState
from magnetar.proxy.known_brokers import BrokerAddress
from magnetar.wire import pulsar_pb2 as pb
from support.proxy_talk import Conversation, Type, connect, look_up, placed

FORGED = {
    "original_principal": {"original_principal": "admin"},
    "original_auth_data": {"original_auth_data": "token"},
    "proxy_version": {"proxy_version": "1"},
}


def asking(brokers: str = "a", *, lookups_max: int = 100) -> Conversation:
    talk = Conversation(brokers, lookups_max=lookups_max)
    assert talk.says(connect()) == ["client: CONNECTED"]
    return talk


def test_a_look_up_names_the_broker_and_the_way_through_the_proxy() -> None:
    talk = asking()
    assert talk.says(look_up(7)) == ["link to a:6650", "to a:6650: LOOKUP 7"]
    assert talk.answers("a", placed(7, "a")) == [
        "client: LOOKUP_RESPONSE 7 pulsar://a:6650 through the proxy",
    ]
    assert talk.says(look_up(8)) == ["to a:6650: LOOKUP 8"]


def test_a_redirect_is_followed_to_a_broker_of_the_cluster() -> None:
    talk = asking("ab")
    first, question = talk.says(look_up(1))
    asked = question[3]
    other = "b" if asked == "a" else "a"
    assert first == f"link to {asked}:6650"
    assert talk.answers(asked, placed(1, other, redirect=True)) == [
        f"link to {other}:6650",
        f"to {other}:6650: LOOKUP 1 authoritative",
    ]
    assert talk.answers(other, placed(1, other)) == [
        f"client: LOOKUP_RESPONSE 1 pulsar://{other}:6650 through the proxy"
    ]


@pytest.mark.parametrize("redirect", [True, False])
def test_a_broker_that_is_none_of_the_cluster_is_not_passed_on(redirect: bool) -> None:
    talk = asking()
    talk.says(look_up(1))
    assert talk.answers("a", placed(1, "evil", redirect=redirect)) == [
        "client: LOOKUP_RESPONSE 1 ServiceNotReady"
    ]


@pytest.mark.parametrize("url", ["pulsar://a:6650", "pulsar://evil:6650"])
def test_the_answer_to_another_question_is_not_passed_on(url: str) -> None:
    """A broker that answered a question about partitions with a place led the client around the proxy."""
    talk = asking()
    partitions = pb.CommandPartitionedTopicMetadata(topic="persistent://public/default/t", request_id=1)
    talk.says(pb.BaseCommand(type=Type.PARTITIONED_METADATA, partitionMetadata=partitions))
    answer = placed(1, "a")
    answer.lookupTopicResponse.brokerServiceUrl = url
    assert not talk.session.lookups.answered(BrokerAddress("a", 6650), answer.type, answer)
    assert talk.told() == []


def test_brokers_that_redirect_in_a_circle_are_asked_only_so_often() -> None:
    talk = asking()
    talk.says(look_up(1))
    for _ in range(20):
        assert talk.answers("a", placed(1, "a", redirect=True)) == ["to a:6650: LOOKUP 1 authoritative"]
    assert talk.answers("a", placed(1, "a", redirect=True)) == ["client: LOOKUP_RESPONSE 1 ServiceNotReady"]


def test_another_broker_is_asked_when_a_link_is_lost() -> None:
    talk = asking("ab")
    asked = talk.says(look_up(1))[0][8]
    other = "b" if asked == "a" else "a"
    assert talk.loses(asked) == [f"link to {other}:6650", f"to {other}:6650: LOOKUP 1"]
    assert talk.loses(other) == ["client: LOOKUP_RESPONSE 1 ServiceNotReady"]


def test_a_refusal_of_the_client_is_passed_on() -> None:
    talk = asking("ab")
    asked = talk.says(look_up(1))[0][8]
    code = pb.ServerError.AuthenticationError
    assert talk.loses(asked, code) == ["client: LOOKUP_RESPONSE 1 AuthenticationError"]


def test_questions_over_the_limit_are_refused() -> None:
    talk = asking(lookups_max=1)
    talk.says(look_up(1))
    assert talk.says(look_up(2)) == ["client: LOOKUP_RESPONSE 2 TooManyRequests"]
    talk.answers("a", placed(1, "a"))
    assert talk.says(look_up(3)) == ["to a:6650: LOOKUP 3"]


def test_a_question_without_an_answer_ends() -> None:
    talk = asking()
    talk.says(look_up(1))
    talk.session.look(59.0)
    assert talk.told() == []
    talk.session.look(61.0)
    assert talk.told() == ["client: LOOKUP_RESPONSE 1 ServiceNotReady"]
    # Its answer may come still, and belongs to no request.
    assert talk.answers("a", placed(1, "a")) == []
    talk.session.look(200.0)
    assert talk.told() == ["link to a:6650 closed"]


def test_the_first_look_at_a_young_connection_ends_none_of_its_questions() -> None:
    talk = asking()
    talk.clock.advance(1_000_000)
    talk.says(look_up(1))
    talk.session.look(1_001.0)
    assert talk.told() == []
    talk.session.look(1_061.0)
    assert talk.told() == ["client: LOOKUP_RESPONSE 1 ServiceNotReady"]


@pytest.mark.parametrize("end", ["time", "lost", "refused"])
def test_questions_end_when_the_place_of_one_lets_in_a_command_that_ends_the_connection(end: str) -> None:
    talk = asking()
    for number in range(3):
        talk.says(look_up(number))
    talk.behind = pb.BaseCommand(type=Type.CONNECT, connect=connect().connect)
    if end == "time":
        talk.session.look(61.0)
        told = talk.told()
    else:
        told = talk.loses("a", None if end == "lost" else pb.ServerError.AuthenticationError)
    assert told.count("client: ERROR NotAllowedError") == 1
    assert talk.session.closed
    assert not len(talk.session.lookups)


def test_two_questions_of_one_number_are_a_fault() -> None:
    talk = asking()
    talk.says(look_up(1))
    assert talk.says(look_up(1)) == [
        "closed: two requests with the id 1",
        "link to a:6650 closed",
    ]


@pytest.mark.parametrize(
    "command",
    [
        pb.BaseCommand(
            type=Type.PRODUCER,
            producer=pb.CommandProducer(topic="t", producer_id=1, request_id=1),
        ),
        pb.BaseCommand(type=Type.CONNECT, connect=connect().connect),
    ],
)
def test_topics_are_not_used_through_the_proxy_itself(command: pb.BaseCommand) -> None:
    talk = asking()
    told = talk.says(command)
    assert told[0] == "client: ERROR NotAllowedError"
    assert talk.session.closed


def test_the_first_command_is_connect() -> None:
    talk = Conversation()
    assert talk.says(look_up(1)) == ["closed: the first command must be CONNECT"]


def test_a_broker_is_reached_by_its_name() -> None:
    talk = Conversation()
    assert talk.says(connect(proxy_to_broker_url="a:6650")) == ["reach a:6650"]
    assert talk.session.room == 0, "nothing is read before the broker has answered"
    assert talk.session.spliced()
    assert talk.session.state is ClientState.SPLICED


def test_a_large_connect_is_refused() -> None:
    talk = Conversation()
    told = talk.says(connect(auth_data=bytes(CONNECT_BYTES_MAX)))
    assert told == [f"closed: a CONNECT of more than {CONNECT_BYTES_MAX} bytes"]
    assert talk.session.closed


@pytest.mark.parametrize("named", ["evil:6650", "a:22", "169.254.169.254:80", "pulsar://a:6650@evil:6650"])
def test_no_other_address_is_reached(named: str) -> None:
    talk = Conversation()
    told = talk.says(connect(proxy_to_broker_url=named))
    assert told[0] == "client: ERROR ServiceNotReady"
    assert talk.session.closed
    assert talk.proxy.figures.forged == 1


@pytest.mark.parametrize("fields", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("through", ["", "a:6650"])
def test_a_client_does_not_say_whom_it_speaks_for(fields: dict[str, str], through: str) -> None:
    talk = Conversation()
    told = talk.says(connect(proxy_to_broker_url=through, **fields))
    assert told[0] == "client: ERROR AuthorizationError"
    assert talk.session.closed


@pytest.mark.parametrize("field", ["original_principal", "original_auth_data", "original_auth_method"])
def test_a_question_does_not_say_whom_it_is_asked_for(field: str) -> None:
    """A broker that trusts this proxy would take the name for the proxy's word."""
    partitions = pb.CommandPartitionedTopicMetadata(topic="t", request_id=1, **{field: "root"})
    for command in (
        pb.BaseCommand(
            type=Type.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="t", request_id=1, **{field: "root"})
        ),
        pb.BaseCommand(type=Type.PARTITIONED_METADATA, partitionMetadata=partitions),
    ):
        talk = asking()
        told = talk.says(command)
        assert told[0] == "client: ERROR AuthorizationError"
        assert talk.session.closed
        assert not talk.links


def test_a_broker_that_is_not_reached_is_an_error_that_clients_try_again_after() -> None:
    talk = Conversation()
    talk.says(connect(proxy_to_broker_url="a:6650"))
    talk.session.unreached("no answer")
    assert talk.told() == ["client: ERROR ServiceNotReady", "closed: no answer"]


def test_without_authentication_the_broker_knows_the_client_itself() -> None:
    talk = Conversation()
    talk.says(connect(proxy_to_broker_url="a:6650", auth_method_name="token", auth_data=b"mine"))
    assert (talk.introduction.auth_method_name, talk.introduction.auth_data) == ("token", b"mine")
    assert not talk.introduction.original_principal
    assert talk.introduction.proxy_version.startswith("Magnetar")
    assert not talk.introduction.proxy_to_broker_url


PROXY = Credentials("token", b"the proxy's")


@pytest.mark.parametrize("forwards", [False, True])
def test_the_broker_is_told_what_the_client_has_proven(forwards: bool) -> None:
    talk = Conversation(authenticates=True, forwards=forwards, own=PROXY)
    told = talk.says(connect(proxy_to_broker_url="a:6650", auth_method_name="token", auth_data=b"mine"))
    assert told == ["check token mine"]
    talk.session.proven(Identity("alice"))
    assert talk.told() == ["reach a:6650"]
    shown = talk.introduction
    assert (shown.auth_data, shown.original_principal) == (b"the proxy's", "alice")
    assert shown.original_auth_data == ("mine" if forwards else "")
    assert shown.original_auth_method == ("token" if forwards else "")


def test_wrong_credentials_reach_no_broker() -> None:
    talk = Conversation(authenticates=True, own=PROXY)
    talk.says(connect(proxy_to_broker_url="a:6650", auth_method_name="token", auth_data=b"x"))
    talk.session.refused(Exception("no"))
    assert talk.told() == ["client: ERROR AuthenticationError", "closed: no"]


def test_links_introduce_the_client_too() -> None:
    talk = Conversation(authenticates=True, own=PROXY)
    talk.says(connect(auth_method_name="token", auth_data=b"x"))
    talk.session.proven(Identity("alice"))
    assert talk.told() == ["client: CONNECTED"]
    talk.says(look_up(1))
    assert talk.links[0].introduction.original_principal == "alice"


def test_credentials_that_only_the_proxy_knows_end_a_spliced_connection() -> None:
    talk = Conversation(authenticates=True, own=PROXY)
    talk.says(connect(proxy_to_broker_url="a:6650", auth_method_name="token", auth_data=b"x"))
    talk.session.proven(Identity("alice", expires_ms=1_000))
    assert talk.session.spliced()
    talk.told()
    talk.session.check_credentials(999)
    assert talk.told() == []
    talk.session.check_credentials(1_000)
    assert talk.told() == ["closed: the client's credentials have expired"]


def test_credentials_that_count_no_more_end_a_spliced_connection() -> None:
    valid = {"alice"}
    talk = Conversation(authenticates=True, own=PROXY, counts=lambda identity: identity.role in valid)
    talk.says(connect(proxy_to_broker_url="a:6650", auth_method_name="token", auth_data=b"x"))
    talk.session.proven(Identity("alice"))
    assert talk.session.spliced()
    asyncio.run(talk.proxy.check_credentials())
    assert not talk.session.closed
    valid.clear()
    asyncio.run(talk.proxy.check_credentials())
    assert talk.session.closed


def test_a_broker_that_has_the_credentials_renews_them_itself() -> None:
    talk = Conversation(authenticates=True, forwards=True, own=PROXY)
    talk.says(connect(proxy_to_broker_url="a:6650", auth_method_name="token", auth_data=b"x"))
    talk.session.proven(Identity("alice", expires_ms=1_000))
    assert talk.session.spliced()
    talk.told()
    talk.session.check_credentials(5_000)
    assert talk.told() == []


def test_a_client_that_asks_questions_renews_its_credentials() -> None:
    talk = Conversation(authenticates=True, forwards=True, own=PROXY)
    flags = pb.FeatureFlags(supports_auth_refresh=True)
    talk.says(connect(auth_method_name="token", auth_data=b"old", feature_flags=flags))
    talk.session.proven(Identity("alice", expires_ms=1_000))
    talk.session.check_credentials(1_000)
    assert talk.told() == ["client: CONNECTED", "client: AUTH_CHALLENGE"]
    answer = pb.CommandAuthResponse(response=pb.AuthData(auth_method_name="token", auth_data=b"new"))
    assert talk.says(pb.BaseCommand(type=Type.AUTH_RESPONSE, authResponse=answer)) == ["check token new"]
    talk.session.proven(Identity("alice", expires_ms=9_000))
    talk.says(look_up(1))
    assert talk.links[0].introduction.original_auth_data == "new"


def test_a_client_that_brokers_have_challenged_first_renews_its_credentials() -> None:
    talk = Conversation(authenticates=True, forwards=True, own=PROXY)
    flags = pb.FeatureFlags(supports_auth_refresh=True)
    talk.says(connect(auth_method_name="token", auth_data=b"old", feature_flags=flags))
    talk.session.proven(Identity("alice", expires_ms=talk.clock.now_ms() + 1_000))
    assert talk.told() == ["client: CONNECTED"]
    talk.session.ended_at_a_broker()
    assert talk.told() == [], "its clock is ahead"
    talk.clock.advance(1_000)
    talk.session.ended_at_a_broker()
    talk.session.ended_at_a_broker()
    assert talk.told() == ["client: AUTH_CHALLENGE"]
    answer = pb.CommandAuthResponse(response=pb.AuthData(auth_method_name="token", auth_data=b"new"))
    assert talk.says(pb.BaseCommand(type=Type.AUTH_RESPONSE, authResponse=answer)) == ["check token new"]


def test_renewed_credentials_name_the_same_role() -> None:
    talk = Conversation(authenticates=True, own=PROXY)
    flags = pb.FeatureFlags(supports_auth_refresh=True)
    talk.says(connect(auth_method_name="token", auth_data=b"old", feature_flags=flags))
    talk.session.proven(Identity("alice", expires_ms=1_000))
    talk.session.check_credentials(1_000)
    answer = pb.CommandAuthResponse(response=pb.AuthData(auth_method_name="token", auth_data=b"new"))
    talk.says(pb.BaseCommand(type=Type.AUTH_RESPONSE, authResponse=answer))
    talk.session.proven(Identity("bob", expires_ms=9_000))
    assert talk.told()[0] == "client: ERROR AuthenticationError"
    assert talk.session.closed


def test_a_silent_client_is_pinged_and_dropped() -> None:
    talk = asking()
    talk.session.keep_alive()
    talk.session.keep_alive()
    assert talk.told() == ["client: PING"]
    talk.session.keep_alive()
    assert talk.told() == ["dropped: no answer to PING within the keep-alive interval"]


def test_new_credentials_of_the_proxy_are_shown_by_the_next_link() -> None:
    talk = Conversation("ab", authenticates=True, own=Credentials("token", b"old"))
    talk.says(connect(auth_method_name="token", auth_data=b"alice"))
    talk.session.proven(Identity("alice"))
    talk.says(look_up(1))
    talk.proxy.credentials_changed(Credentials("token", b"new"))
    talk.loses(str(talk.links[0].target.host))
    assert [link.introduction.auth_data for link in talk.links] == [b"old", b"new"]
    assert talk.links[1].introduction.original_principal == "alice"

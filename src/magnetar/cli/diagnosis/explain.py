"""`magnetar explain`: the meaning of an error code, and the next step.

Source: Pulsar binary protocol, ServerError; the exit codes are those of `exit_codes.py`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import click

from magnetar.base.errors import MagnetarError
from magnetar.cli.output import FORMATS, show


class Meaning(NamedTuple):
    """The meaning of one code."""

    meaning: str
    remedy: str


CODES: Final[dict[str, Meaning]] = {
    "UnknownError": Meaning(
        "the broker had an error without a code of its own", "look at the broker's log at that time"
    ),
    "MetadataError": Meaning(
        "the metadata store refused or cannot be reached",
        "see `magnetar doctor` and the disk of the data folder; try again",
    ),
    "PersistenceError": Meaning(
        "the message could not be made durable",
        "look at the disk: a failed sync is never tried again, the broker must be restarted",
    ),
    "AuthenticationError": Meaning(
        "the credentials are missing, wrong, or have expired",
        "check --token-file, when the token expires, and the broker's providers (docs/security.md)",
    ),
    "AuthorizationError": Meaning(
        "the role is known and may not do this",
        "`magnetar auth can-i ACTION TOPIC` says which grant is missing; an administrator grants",
    ),
    "ConsumerBusy": Meaning(
        "an Exclusive subscription has a consumer already, or a limit of consumers is reached",
        "close the other one, or use another type or subscription",
    ),
    "ServiceNotReady": Meaning(
        "the topic is being moved or closed, or the broker starts, stops or its disk is full",
        "try again: clients do so automatically; see the broker's log if it continues",
    ),
    "ProducerBlockedQuotaExceededError": Meaning(
        "the backlog quota is reached and its policy makes producers wait",
        "consume or skip the backlog, or raise backlogQuota",
    ),
    "ProducerBlockedQuotaExceededException": Meaning(
        "the backlog quota, or what the tenant may store, is reached; producers are refused",
        "consume or skip the backlog, or raise backlogQuota",
    ),
    "ChecksumError": Meaning(
        "the message was damaged on its way to the broker",
        "clients send it again; if it stays so, look at network and memory",
    ),
    "UnsupportedVersionError": Meaning(
        "the client's protocol is too old, or the client requests a feature that the broker lacks",
        "use a newer client; docs/compatibility.md lists the features",
    ),
    "TopicNotFound": Meaning(
        "the topic or its namespace does not exist",
        "check the name; `magnetar topics create`, or allow autoTopicCreation",
    ),
    "SubscriptionNotFound": Meaning(
        "the subscription does not exist and automatic creation is off",
        "`magnetar subscriptions create`, or allow autoSubscriptionCreation",
    ),
    "ConsumerNotFound": Meaning("the consumer was closed meanwhile", "open it again"),
    "TooManyRequests": Meaning(
        "a connection has too many requests under way, or a coordinator too many open transactions",
        "wait for answers, or end transactions, before the next request",
    ),
    "TopicTerminatedError": Meaning("the topic takes no more messages, for good", "publish to another topic"),
    "ProducerBusy": Meaning(
        "a producer of that name is connected, or a limit of producers is reached",
        "give each producer its own name, or raise maxProducersPerTopic",
    ),
    "InvalidTopicName": Meaning(
        "the name breaks the grammar of topic names", "write domain://tenant/namespace/topic"
    ),
    "IncompatibleSchema": Meaning(
        "the schema is not compatible with those of the topic",
        "`magnetar schemas list TOPIC`; change it, or schemaCompatibilityStrategy",
    ),
    "ConsumerAssignError": Meaning(
        "a Key_Shared consumer asked for hashes that another one has", "choose ranges that do not overlap"
    ),
    "TransactionCoordinatorNotFound": Meaning(
        "the broker has no such transaction coordinator, or it cannot store anything now",
        "clients try again; see `magnetar transactions coordinators`, and the broker's log if it continues",
    ),
    "InvalidTxnStatus": Meaning(
        "the transaction has ended, by its client, its time or an operator",
        "begin another one; the broker's log says why it ended",
    ),
    "NotAllowedError": Meaning(
        "a policy or the kind of the topic forbids it",
        "the message names the policy; `magnetar namespaces policies get NAMESPACE`",
    ),
    "TransactionConflict": Meaning(
        "the message is acknowledged already, or another transaction acknowledges it",
        "abort this transaction; the message is delivered again if the other one is aborted",
    ),
    "TransactionNotFound": Meaning(
        "the transaction is not known, or belongs to another role",
        "begin another one; `magnetar transactions list` shows those that are open",
    ),
    "ProducerFenced": Meaning(
        "another producer has taken the topic exclusively",
        "close one of them, or use ProducerAccessMode.WaitForExclusive",
    ),
    "401": Meaning(
        "the admin API did not accept your credentials", "give a token: --token-file, or a context"
    ),
    "403": Meaning(
        "your role may not do this, or the call comes from a web page of another site",
        "`magnetar auth can-i ACTION TOPIC` says which grant is missing",
    ),
    "404": Meaning(
        "the thing that the path names does not exist", "check the name; names are parts of the path"
    ),
    "405": Meaning(
        "the call is not possible for this kind of topic, for instance a partitioned one",
        "name a partition: TOPIC-partition-0",
    ),
    "409": Meaning("it exists already, is in use, or runs already", "find out what uses it, or use --force"),
    "412": Meaning("a value is not legal, or a precondition does not hold", "the answer names it"),
    "413": Meaning("the body is larger than 1 MiB", "send less"),
    "421": Meaning(
        "the header Host does not name this machine, and only this machine can reach the port",
        "use 127.0.0.1 or localhost, or set `host` so that the broker listens on other addresses",
    ),
    "429": Meaning(
        "a limit on calls, or on the time that a role may use, is reached",
        "wait; the limits are http_calls_per_second, commands_per_second_per_role and loop_percent_per_role",
    ),
    "501": Meaning(
        "Pulsar has this feature, and this broker does not", "docs/compatibility.md lists the features"
    ),
    "503": Meaning(
        "the broker is starting, stopping or overloaded, or another broker gave no answer", "try again"
    ),
}
"""Meanings by the protocol's name of the code, or by HTTP status."""


class UnknownCodeError(MagnetarError):
    """The code is unknown."""


def found(code: str) -> str:
    """The key in CODES for a name in any spelling, a number of the protocol or a status.

    Raises UnknownCodeError.
    """
    if code in CODES:
        return code
    from magnetar.wire import pulsar_pb2 as pb

    if code.isdigit() and int(code) in pb.ServerError.values():
        return pb.ServerError.Name(pb.ServerError.ValueType(int(code)))
    wanted = code.lower().removesuffix("exception").removesuffix("error")
    for name in CODES:
        if name.lower().removesuffix("exception").removesuffix("error") == wanted:
            return name
    import difflib

    close = difflib.get_close_matches(code, CODES, n=1, cutoff=0.5)
    raise UnknownCodeError(
        f"there is no code {code!r}; "
        + (f"did you mean {close[0]}?" if close else "`magnetar explain` lists them")
    )


@click.command(epilog="Example: magnetar explain ProducerBusy")
@click.argument("code", required=False)
@click.option(
    "-o", "--output", type=click.Choice(FORMATS), default="table", help="Format of the output.  [table]"
)
def explain(code: str | None, output: str) -> None:
    """Explain an error CODE, and what to do: a name or number of the protocol, or an HTTP status.
    `magnetar topics explain` shows why a subscription does not dispatch.
    """
    if code is None:
        show([{"code": name, "meaning": each.meaning} for name, each in CODES.items()], output)
        return
    name = found(code)
    show({"code": name, "meaning": CODES[name].meaning, "remedy": CODES[name].remedy}, output)

"""What processes of functions show to the broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar.auth.authentication import Authentication
from magnetar.auth.identity import METHOD_TOKEN, Credentials, Identity
from magnetar.functions.errors import NoOwnerError
from magnetar.functions.ports import StoredFunction
from magnetar.server.function_credentials import NoCredentials, OwnersCredentials
from support.functions import config

FUNCTION = StoredFunction(
    tenant="public", namespace="default", name="ex", version=1, config=config(), package=None
)


def test_without_authentication_nothing_is_shown() -> None:
    NoCredentials().withdraw(NoCredentials().issue(FUNCTION))
    assert NoCredentials().issue(FUNCTION) == ""


def test_a_function_without_an_owner_does_not_run() -> None:
    with pytest.raises(NoOwnerError, match="update it with the role that shall own it"):
        OwnersCredentials(lambda: None).issue(FUNCTION)


def test_connections_are_closed_when_the_process_has_ended() -> None:
    closed: list[bool] = []
    made = OwnersCredentials(lambda: closed.append(chain.counts(identity)))
    chain = Authentication({}, functions=made.tokens)
    token = made.issue(replace(FUNCTION, owner=Identity("ada")))
    identity = chain.identify(Credentials(METHOD_TOKEN, token.encode()), 0)
    assert isinstance(identity, Identity)
    assert identity.role == "ada"
    made.withdraw(token)
    assert closed == [False]

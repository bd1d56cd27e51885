"""A token of a function has the rights of its owner, and counts as long as its process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar.auth.authentication import Authentication
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.function_tokens import FunctionTokens
from magnetar.auth.identity import METHOD_TOKEN, Credentials, Identity, Proof

OWNER = Identity("ada", 5, via="proxy", also=("team",), proofs=(Proof("token", "key:1"),))


def shown(token: str) -> Credentials:
    return Credentials(METHOD_TOKEN, token.encode())


def test_it_speaks_for_its_owner_without_the_end_of_the_owners_credential() -> None:
    tokens = FunctionTokens()
    chain = Authentication({}, functions=tokens)
    first, second = tokens.issue(OWNER, "t/n/f"), tokens.issue(OWNER, "t/n/f")
    assert first != second
    found = chain.identify(shown(first), 1 << 60)
    assert isinstance(found, Identity)
    assert (found.speakers, found.expires_ms, found.function) == (OWNER.speakers, None, "t/n/f")
    assert str(found) == "'ada' via 'proxy' by function 't/n/f'"
    assert first not in repr(found), "no log shows it"


def test_it_counts_until_it_is_withdrawn() -> None:
    tokens = FunctionTokens()
    chain = Authentication({}, functions=tokens)
    token, other = tokens.issue(OWNER, "t/n/f"), tokens.issue(OWNER, "t/n/g")
    found = chain.identify(shown(token), 0)
    assert isinstance(found, Identity)
    assert chain.counts(found)
    tokens.withdraw(token)
    assert not chain.counts(found)
    with pytest.raises(AuthenticationError, match="has ended"):
        chain.identify(shown(token), 0)
    assert isinstance(chain.identify(shown(other), 0), Identity)


def test_one_that_does_not_count_is_never_anonymous() -> None:
    chain = Authentication({}, "guest", functions=FunctionTokens())
    token = FunctionTokens().issue(OWNER, "t/n/f")
    with pytest.raises(AuthenticationError):
        chain.identify(shown(token), 0)
    assert chain.identify(shown("another"), 0) == Identity("guest")
    without = replace(chain, functions=None)
    assert without.identify(shown(token), 0) == Identity("guest"), "as every unknown credential"

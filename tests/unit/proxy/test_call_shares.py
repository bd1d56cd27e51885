"""Places and memory of calls at the proxy: no address has all of them."""

from __future__ import annotations

from magnetar.proxy.call_shares import BODIES_BYTES_MAX, CALLS_MAX, CALLS_OF_ADDRESS_MAX, CallShares


def test_an_address_has_some_of_the_places_only() -> None:
    shares = CallShares()
    assert all(shares.enter("a") for _ in range(CALLS_OF_ADDRESS_MAX))
    assert not shares.enter("a")
    assert shares.enter("b")
    shares.leave("a", 0)
    assert shares.enter("a")


def test_all_addresses_together_have_a_bound() -> None:
    shares = CallShares()
    assert [shares.enter(str(number)) for number in range(CALLS_MAX + 1)] == [*[True] * CALLS_MAX, False]


def test_bodies_of_all_calls_have_a_bound() -> None:
    shares = CallShares()
    shares.enter("a")
    assert shares.take(BODIES_BYTES_MAX)
    shares.enter("b")
    assert not shares.take(1)
    shares.leave("a", BODIES_BYTES_MAX)
    shares.leave("b", 1)
    assert shares.take(BODIES_BYTES_MAX)

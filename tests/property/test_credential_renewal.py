"""Credentials on an open connection, against the promise: no client stays long on a credential that ended."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.auth.renewal import Renewal, RenewalState, RenewalVerdict

INTERVAL_MS = 60_000


class RenewalMachine(RuleBasedStateMachine):
    """A client of any manners, checked at every interval."""

    @initialize(
        end_ms=st.none() | st.integers(0, 5 * INTERVAL_MS),
        proxy_end_ms=st.none() | st.integers(0, 9 * INTERVAL_MS),
        renews=st.booleans(),
        forwarded=st.booleans(),
    )
    def begin(self, end_ms: int | None, proxy_end_ms: int | None, renews: bool, forwarded: bool) -> None:
        self.now_ms = 0
        self.closed = False
        self.able = renews and forwarded
        self.proxy_end_ms = proxy_end_ms
        self.end_ms = end_ms
        self.rounds_after_end = 0
        credentials = Credentials("token", b"1") if forwarded else None
        self.renewal = Renewal(
            Identity("me", end_ms, via="proxy"),
            credentials,
            client_renews=renews,
            others_end_ms=proxy_end_ms,
        )

    @precondition(lambda self: not self.closed and self.renewal.state is not RenewalState.VERIFYING)
    @rule(step_ms=st.integers(1, INTERVAL_MS))
    def check(self, step_ms: int) -> None:
        self.now_ms += step_ms
        proxy_ended = self.proxy_end_ms is not None and self.now_ms >= self.proxy_end_ms
        ended = self.end_ms is not None and self.now_ms >= self.end_ms
        challenged = self.renewal.state is RenewalState.CHALLENGED
        verdict = self.renewal.check(self.now_ms)
        if proxy_ended:
            wanted = RenewalVerdict.CLOSE
        elif not ended:
            wanted = RenewalVerdict.KEEP
        else:
            self.rounds_after_end += 1
            wanted = RenewalVerdict.CHALLENGE if self.able and not challenged else RenewalVerdict.CLOSE
        assert verdict is wanted
        self.closed = verdict is RenewalVerdict.CLOSE
        assert bool(self.renewal.reason) == self.closed

    @precondition(lambda self: self.closed)
    @rule()
    def gone(self) -> None:
        """Nothing more happens on a closed connection."""

    @precondition(lambda self: not self.closed)
    @rule(method=st.sampled_from(["", "token", "basic"]), data=st.sampled_from([b"", b"x"]))
    def answer(self, method: str, data: bytes) -> None:
        asked = self.renewal.state is RenewalState.CHALLENGED
        try:
            credentials = self.renewal.answered(method, data)
        except AuthenticationError:
            assert not asked or method == "basic"
            self.closed = True
            return
        assert asked
        assert (credentials.method, credentials.data) == ("token", data)
        # However late the check comes: a client that is being verified is not sent away.
        verdict = self.renewal.check(self.now_ms)
        proxy_ended = self.proxy_end_ms is not None and self.now_ms >= self.proxy_end_ms
        assert verdict is (RenewalVerdict.CLOSE if proxy_ended else RenewalVerdict.KEEP)

    @precondition(lambda self: not self.closed and self.renewal.state is RenewalState.VERIFYING)
    @rule(role=st.sampled_from(["me", "me", "you"]), more_ms=st.none() | st.integers(0, 3 * INTERVAL_MS))
    def proven(self, role: str, more_ms: int | None) -> None:
        end_ms = None if more_ms is None else self.now_ms + more_ms
        try:
            self.renewal.proven(Identity(role, end_ms))
        except AuthenticationError:
            assert role == "you"
            self.closed = True
            return
        assert role == "me"
        self.end_ms = end_ms
        self.rounds_after_end = 0
        assert self.renewal.identity == Identity("me", end_ms, via="proxy")

    @invariant()
    def nobody_stays(self) -> None:
        if not hasattr(self, "renewal"):
            return
        assert self.closed or self.rounds_after_end <= 1
        assert self.renewal.identity.role == "me"


TestRenewal = RenewalMachine.TestCase

"""One client connection of the proxy: its state, and what its commands ask for (pure).

`client_states.py` has the table of its states.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.auth.renewal import Renewal, RenewalState, RenewalVerdict
from magnetar.base.machine import Machine
from magnetar.broker.session.greetings import CONNECT_BYTES_MAX
from magnetar.broker.session.keep_alive import KeepAlive, Liveness
from magnetar.proxy.client_states import NEXT, ClientState
from magnetar.proxy.introduction import VERSION, connected_for_questions, introduce
from magnetar.proxy.known_brokers import BrokerAddress, KnownBrokers
from magnetar.proxy.lookups import IN_WORK_MAX, QUESTIONS, Link, Lookups, speaks_for_another
from magnetar.proxy.ports import ProxyPort
from magnetar.wire import commands, features
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import CommandEvent
from magnetar.wire.frames import NO_REQUEST

_log = logging.getLogger("magnetar.proxy")

Type = pb.BaseCommand.Type
_S = ClientState


class ClientDriver(Protocol):
    """What a session needs of its socket."""

    def write(self, data: bytes) -> None:
        """Sends bytes to the client."""

    def close(self, reason: str) -> None:
        """Closes the connection when what was written has left; `closed` follows."""

    def abort(self, reason: str) -> None:
        """Closes the connection at once."""

    def look(self, now_s: float) -> None:
        """Closes a spliced connection on which nothing passes any more."""

    def read_on(self) -> None:
        """The session takes commands again, see `ProxySession.takes_commands`."""

    def check(self, credentials: Credentials) -> None:
        """Begins to check credentials; `proven` or `refused` follows."""

    def reach(self, target: BrokerAddress, introduction: bytes) -> None:
        """Begins to connect to a broker; `spliced` or `unreached` follows."""

    def open_link(self, target: BrokerAddress, introduction: bytes) -> Link:
        """Begins to connect to a broker for questions; its answers are told to `lookups`."""


class ProxySession:
    """One client. See the module's text."""

    __slots__ = (
        "_connect",
        "_driver",
        "_introduction",
        "_keep_alive",
        "_life",
        "_proxy",
        "_renewal",
        "_shown",
        "certificate_role",
        "ends_ms",
        "identity",
        "lookups",
        "peer",
        "target",
    )

    def __init__(
        self, proxy: ProxyPort, driver: ClientDriver, *, peer: str, certificate_role: str | None = None
    ) -> None:
        """`peer`: address and port. `certificate_role`: see `auth.identity`."""
        self._proxy = proxy
        self._driver = driver
        self._life: Machine[ClientState] = Machine(f"the proxy's connection of {peer}", NEXT, _S.SILENT)
        self._connect = pb.CommandConnect()
        self._shown = Credentials("")
        self._introduction = b""
        """With which connections to brokers begin; set once the client is admitted."""
        self._keep_alive = KeepAlive()
        self._renewal: Renewal | None = None
        self.peer = peer
        self.certificate_role = certificate_role
        self.identity: Identity | None = None
        """What the client has proven; None: nothing yet, or clients are not authenticated here."""
        self.lookups = Lookups(self)
        self.target: BrokerAddress | None = None
        """The broker that it wants, or has, a connection to."""
        self.ends_ms: int | None = None
        """Unix ms at which a spliced connection must end, as only the proxy knows that its credentials have
        ended; None: never."""

    @property
    def state(self) -> ClientState:
        """See `ClientState`."""
        return self._life.now

    @property
    def closed(self) -> bool:
        """Whether nothing more is taken or sent."""
        return self._life.now is _S.CLOSED

    @property
    def room(self) -> int:
        """Commands that may be read now; 0: reading waits for `read_on`."""
        if self._life.now is _S.SILENT:
            return 1
        if self._life.now is _S.LOOKUPS:
            return IN_WORK_MAX - len(self.lookups)
        return 0

    # -- of the client -----------------------------------------------------------------------------

    def handle(self, events: Sequence[object]) -> None:
        """Takes what was read, at most `room` commands."""
        self._keep_alive.heard = True
        for event in events:
            if self.closed:
                return
            if not isinstance(event, CommandEvent):
                self._refuse_command()
            elif self._life.now is _S.SILENT and event.type == Type.CONNECT:
                self._greet(event.command.connect)
            elif self._life.now is _S.LOOKUPS:
                self._command(event.type, event.command)
            else:
                self.close("the first command must be CONNECT")

    def _greet(self, connect: pb.CommandConnect) -> None:
        self._proxy.greetings.ended(self)
        self._life.go(_S.CHECKING, "CONNECT")
        if connect.ByteSize() > CONNECT_BYTES_MAX:
            self.close(f"a CONNECT of more than {CONNECT_BYTES_MAX} bytes")
            return
        if connect.original_principal or connect.original_auth_data or connect.HasField("proxy_version"):
            # It would speak for others with the rights of this proxy.
            self.refuse(pb.ServerError.AuthorizationError, "a proxy cannot connect through this proxy")
            return
        self._connect = connect
        self._shown = Credentials(connect.auth_method_name, connect.auth_data, self.certificate_role)
        if self._proxy.authenticates:
            self._driver.check(self._shown)
        else:
            self._admit()

    def _command(self, kind: int, command: pb.BaseCommand) -> None:
        if speaks_for_another(kind, command):
            self.refuse(pb.ServerError.AuthorizationError, "only a proxy names the client of a question")
        elif kind in QUESTIONS:
            self._proxy.figures.lookups += 1
            if reason := self.lookups.ask(kind, command):
                self.close(reason)
        elif kind == Type.PING:
            self.reply(commands.PONG)
        elif kind == Type.PONG:
            self._keep_alive.answered()
        elif kind == Type.AUTH_RESPONSE:
            self._renewed(command.authResponse.response)
        else:
            self._refuse_command()

    def _refuse_command(self) -> None:
        self.refuse(
            pb.ServerError.NotAllowedError,
            "the proxy answers look-ups; for this the client connects to the broker that a look-up names,"
            " by proxy_to_broker_url",
        )

    # -- of its credentials ------------------------------------------------------------------------

    def proven(self, identity: Identity) -> None:
        """The credentials are right."""
        if self._life.now is _S.LOOKUPS:
            self._proven_again(identity)
        elif self._life.now is _S.CHECKING:
            self.identity = identity
            self._admit()

    def refused(self, error: Exception) -> None:
        """The credentials are wrong."""
        self.refuse(pb.ServerError.AuthenticationError, str(error))

    def _admit(self) -> None:
        connect = self._connect
        if not self._introduce():
            return
        if not connect.proxy_to_broker_url:
            self._life.go(_S.LOOKUPS, "admitted")
            if self.identity is not None:
                renews = features.renews_credentials(connect)
                self._renewal = Renewal(self.identity, self._shown, client_renews=renews)
            self.reply(connected_for_questions(connect))
            self._driver.read_on()
            return
        target = self._proxy.targets.find(connect.proxy_to_broker_url)
        if target is None:
            self._proxy.figures.forged += 1
            _log.warning(
                "%s: connection refused: %r names none of the brokers",
                self.peer,
                connect.proxy_to_broker_url[:200],
            )
            self.refuse(
                pb.ServerError.ServiceNotReady,
                "the broker in proxy_to_broker_url is none of the brokers of this proxy's cluster",
            )
            return
        self.target = target
        self._life.go(_S.REACHING, str(target))
        if self.identity is not None and not self._proxy.options.forwards_credentials:
            self.ends_ms = self.identity.expires_ms
        self._driver.reach(target, self._introduction)

    def _introduce(self) -> bool:
        """Prepares the introduction at brokers; False: the connection was closed instead."""
        try:
            self._introduction = introduce(
                self._connect,
                role="" if self.identity is None else self.identity.role,
                shown=self._shown,
                own=self._proxy.credentials,
                forwards=self._proxy.options.forwards_credentials,
            )
        except ValueError:
            self.refuse(pb.ServerError.AuthenticationError, "these credentials cannot be forwarded")
            return False
        return True

    def introduce_anew(self) -> None:
        """The proxy has new credentials of its own."""
        if self._life.now is _S.LOOKUPS:
            self._introduce()

    def _renewed(self, data: pb.AuthData) -> None:
        """The client shows new credentials."""
        if self._renewal is None:
            # Clients are not authenticated here: a broker has asked for it, and the next links show them.
            self._shown = Credentials(self._shown.method, data.auth_data, self.certificate_role)
            self._introduce()
            return
        try:
            self._shown = self._renewal.answered(data.auth_method_name, data.auth_data)
        except AuthenticationError as error:
            self.refused(error)
        else:
            self._driver.check(self._shown)

    def _proven_again(self, identity: Identity) -> None:
        assert self._renewal is not None, "credentials were checked"
        try:
            self._renewal.proven(identity)
        except AuthenticationError as error:
            self.refused(error)
        else:
            self.identity = self._renewal.identity
            self._introduce()

    def check_credentials(self, now_ms: int) -> None:
        """Challenges or closes a client whose credentials have ended; called every minute or so."""
        if self._life.now is _S.SPLICED and self.ends_ms is not None and now_ms >= self.ends_ms:
            self._driver.close("the client's credentials have expired")
        elif self._life.now is _S.LOOKUPS and self._renewal is not None:
            verdict = self._renewal.check(now_ms)
            if verdict is RenewalVerdict.CHALLENGE:
                self._challenge()
            elif verdict is RenewalVerdict.CLOSE:
                self.close(self._renewal.reason)

    def ended_at_a_broker(self) -> None:
        """A broker has found that the client's credentials have ended, perhaps one after another."""
        if self._renewal is None:
            self._challenge()
        elif self._renewal.state is RenewalState.VALID:
            # It is asked once, and its answer is expected then: an answer to no question ends the connection.
            self.check_credentials(self._proxy.clock.now_ms())

    def _challenge(self) -> None:
        """Asks for new credentials."""
        method = self._shown.method
        version = features.negotiated_version(self._connect.protocol_version)
        self.reply(commands.auth_challenge(VERSION, version, method, _CHALLENGE))

    # -- of the broker that it wants ---------------------------------------------------------------

    def spliced(self) -> bool:
        """The broker has answered CONNECTED; False: the client is gone."""
        if self._life.now is not _S.REACHING:
            return False
        self._life.go(_S.SPLICED, "CONNECTED of the broker")
        return True

    def unreached(self, reason: str, code: pb.ServerError | None = None) -> None:
        """There is no connection to the broker. `code`: of its refusal; None: it did not answer."""
        self.refuse(pb.ServerError.ServiceNotReady if code is None else code, reason)

    # -- what questions ask of it ------------------------------------------------------------------

    @property
    def targets(self) -> KnownBrokers:
        return self._proxy.targets

    def open_link(self, target: BrokerAddress) -> Link:
        return self._driver.open_link(target, self._introduction)

    def now_s(self) -> float:
        return self._proxy.clock.monotonic_ms() / 1000

    def take_place(self) -> bool:
        return self._proxy.take_place()

    def give_place_back(self) -> None:
        self._proxy.give_place_back()
        self._driver.read_on()

    def reply(self, frame: bytes) -> None:
        """Sends the client a frame."""
        if not self.closed:
            self._driver.write(frame)

    # -- its end -----------------------------------------------------------------------------------

    def look(self, now_s: float) -> None:
        """Called every second or so."""
        if self._life.now is _S.LOOKUPS:
            self.lookups.look(now_s)
        elif self._life.now is _S.SPLICED:
            self._driver.look(now_s)

    def keep_alive(self) -> None:
        """Called at the keep-alive interval: pings a silent client, drops one that does not answer."""
        if self._life.now is not _S.LOOKUPS:
            return
        verdict = self._keep_alive.look(connected=True, unread=self.room <= 0)
        if verdict is Liveness.PING:
            self.reply(commands.PING)
        elif verdict is not Liveness.THERE:
            self._driver.abort(verdict.value)

    def refuse(self, code: pb.ServerError, reason: str) -> None:
        """Sends an error that ends the connection."""
        if not self.closed:
            self.reply(commands.error(NO_REQUEST, code, reason))
            self.close(reason)

    def close(self, reason: str) -> None:
        """Closes the connection."""
        if not self.closed:
            self._driver.close(reason)
            self.ended(reason)

    def abort(self, reason: str) -> None:
        """Closes the connection at once."""
        if not self.closed:
            self._driver.abort(reason)
            self.ended(reason)

    def ended(self, reason: str) -> None:
        """The connection is closed, or about to be. May be called again."""
        if not self.closed:
            self._life.go(_S.CLOSED, reason)
            self._proxy.greetings.ended(self)
            self.lookups.close()

    def check(self) -> None:
        """Asserts what must always hold."""
        self.lookups.check()
        assert self._life.now is _S.LOOKUPS or not len(self.lookups), "questions outside of LOOKUPS"
        assert self.target is not None or self._life.now not in (_S.REACHING, _S.SPLICED), "no broker"
        assert self.identity is not None or not self._proxy.authenticates or self._life.now in _UNPROVEN, (
            "a client that has proven nothing"
        )


_CHALLENGE: Final = b"PulsarAuthRefresh"
"""Source: Pulsar's AuthData."""
_UNPROVEN: Final = (_S.SILENT, _S.CHECKING, _S.CLOSED)

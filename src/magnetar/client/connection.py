"""A blocking connection to one broker: moves bytes between a socket and a `ClientSession`.

For sequential processes, such as Spark executors; not thread-safe. Every wait is bounded. After an error the
connection is closed, and the caller must open another one.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import magnetar
from magnetar.base.closing import Closing
from magnetar.base.errors import ProtocolError
from magnetar.base.ids import RequestId
from magnetar.client.errors import RefusedError, RequestTimeoutError, UnreachableError
from magnetar.client.options import ClientOptions
from magnetar.client.service_url import ServiceUrl
from magnetar.client.session import ClientSession
from magnetar.client.tls import tls_context
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import encode_command

_READ_BYTES: Final = 1 << 20
"""Most bytes of one read; a socket buffer on loopback holds a few hundred KiB."""
_FIRST_BYTES: Final = 32 << 10
"""Most bytes of the first read. Reads that are filled grow to `_READ_BYTES`: a connection without messages,
of which a machine may have thousands, holds little memory."""

_RECEIVE_BUFFER_BYTES: Final = 4 << 20
"""Bytes of receive buffer requested from the kernel, so that the broker keeps sending while a batch is
decoded."""

T = TypeVar("T")


class Connection(Closing):
    """An open connection after its handshake."""

    def __init__(self, url: ServiceUrl, options: ClientOptions, *, proxy_to: str = "") -> None:
        """Connects. `proxy_to`: host and port of the broker behind a proxy at `url`.

        Raises UnreachableError, RequestTimeoutError, or RefusedError when the broker rejects the credentials.
        """
        self.url = url
        self._name = str(url)
        self._options = options
        self.session = ClientSession(f"Magnetar-{magnetar.__version__}")
        self._buffer = bytearray(_FIRST_BYTES)
        self._size = 0
        self._filled = False
        """Whether the last read took all that it could."""
        self._socket = self._open()
        try:
            method, data = options.credentials()
            self.write(self.session.connect(auth_method=method, auth_data=data, proxy_to=proxy_to))
            answer = self.wait(self.session.connected, "CONNECT", options.connect_timeout_s)
            if answer.HasField("error"):
                raise RefusedError(f"connection to {url}", answer.error.error, answer.error.message)
        except BaseException:
            self.close()
            raise

    def _open(self) -> socket.socket:
        url = self.url
        try:
            plain = socket.create_connection((url.host, url.port), timeout=self._options.connect_timeout_s)
        except OSError as error:
            raise UnreachableError(
                self._name, f"{error.strerror or error}; is the broker running and the address right?"
            ) from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        if not url.is_tls:
            return plain
        try:
            return tls_context(self._options).wrap_socket(plain, server_hostname=url.host)
        except OSError as error:
            plain.close()
            raise UnreachableError(self._name, f"TLS: {error}") from error
        except BaseException:
            plain.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether the connection is neither closed nor lost."""
        return self._socket.fileno() >= 0

    def fileno(self) -> int:
        """Descriptor of the socket; -1 when it is closed."""
        return self._socket.fileno()

    def has_data(self) -> bool:
        """Whether `read` would return at once with data."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        # Not select: it does not support the high descriptors of a process with many files.
        watch = select.poll()
        watch.register(self._socket, select.POLLIN)
        return bool(watch.poll(0))

    def write(self, data: bytes | Sequence[bytes]) -> None:
        """Sends all of `data`. Raises UnreachableError."""
        if not isinstance(data, bytes):
            data = b"".join(data)
        try:
            self._socket.settimeout(self._options.request_timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            self.close()
            raise UnreachableError(self._name, f"connection lost while sending: {error}") from error

    def read(self, timeout_s: float) -> bool:
        """Reads once and passes the bytes to the session; False when none came within `timeout_s` seconds.

        Raises UnreachableError when the connection is lost or the broker breaks the protocol.
        """
        self._make_room()
        try:
            self._socket.settimeout(max(timeout_s, 0.0005))
            count = self._socket.recv_into(memoryview(self._buffer)[self._size :])
        except (TimeoutError, ssl.SSLWantReadError):
            return False
        except OSError as error:
            self.close()
            raise UnreachableError(self._name, f"connection lost: {error}") from error
        if count == 0:
            self.close()
            raise UnreachableError(self._name, "the broker closed the connection")
        self._size += count
        self._filled = self._size == len(self._buffer)
        session = self.session
        if self._size >= session.needed:
            try:
                taken = session.receive(self._buffer, self._size)
            except ProtocolError as error:
                self.close()
                raise UnreachableError(self._name, f"protocol broken: {error}") from error
            if taken:
                left = self._size - taken
                self._buffer[:left] = self._buffer[taken : self._size]
                self._size = left
            if session.challenged:
                method, data = self._options.credentials()
                session.respond(method or "", data)
            if session.outgoing:
                frames = session.outgoing
                session.outgoing = []
                self.write(frames)
        return True

    def _make_room(self) -> None:
        room = len(self._buffer)
        if self._filled and room < _READ_BYTES:
            room *= 4
        wanted = max(room, self._size + room // 4, self.session.needed)
        if wanted > len(self._buffer):
            self._buffer.extend(bytes(wanted - len(self._buffer)))

    def wait(self, poll: Callable[[], T | None], what: str, timeout_s: float | None = None) -> T:
        """Reads until `poll` returns a value, for `timeout_s` seconds at most; None: the request timeout.
        `what` names the request in errors. Raises RequestTimeoutError, UnreachableError."""
        if timeout_s is None:
            timeout_s = self._options.request_timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            found = poll()
            if found is not None:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                raise RequestTimeoutError(self._name, what, timeout_s)
            self.read(left)

    def request(self, request_id: RequestId, frame: bytes, what: str) -> pb.BaseCommand:
        """Sends a request and returns its answer.

        Raises RefusedError when the answer is an ERROR. The caller must check answers that have their own
        error field.
        """
        self.write(frame)
        answer = self.wait(lambda: self.session.reply(request_id), what)
        if answer.HasField("error"):
            raise RefusedError(what, answer.error.error, answer.error.message)
        return answer

    def call(self, command: pb.BaseCommand, request_id: RequestId, what: str) -> pb.BaseCommand:
        """Encodes a command, sends it as `request` does, and returns its answer."""
        return self.request(request_id, encode_command(command), what)

    def close(self) -> None:
        """Closes the socket; may be called twice."""
        # Only the constructor can fail before the socket exists.
        if hasattr(self, "_socket"):
            self._socket.close()

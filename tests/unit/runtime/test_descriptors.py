"""A socket goes to another process with what was read from it. Both ends are in this process here."""

from __future__ import annotations

import asyncio
import errno
import socket
from pathlib import Path

import pytest

from magnetar.runtime import descriptors
from magnetar.runtime.descriptors import DATA_BYTES_MAX, SocketReceiver, hand_over


def test_the_peer_goes_on_with_the_receiver(tmp_path: Path) -> None:
    async def story() -> None:
        came: asyncio.Queue[tuple[socket.socket, bytes]] = asyncio.Queue(2)
        receiver = SocketReceiver(tmp_path / "1.sock", lambda taken, data: came.put_nowait((taken, data)))
        client, served = socket.socketpair()
        first = b"x" * DATA_BYTES_MAX
        await hand_over(tmp_path / "1.sock", served.fileno, first)
        # The sender's end of it does not end the connection.
        served.close()
        taken, data = await came.get()
        assert data == first
        client.send(b"more")
        assert taken.recv(10) == b"more"
        taken.send(b"answer")
        assert client.recv(10) == b"answer"
        for each in (client, taken):
            each.close()
        receiver.close()
        receiver.close()
        assert not (tmp_path / "1.sock").exists()

    asyncio.run(story())


def test_a_receiver_that_is_gone_is_noticed(tmp_path: Path) -> None:
    async def story() -> None:
        client, served = socket.socketpair()
        with client, served:
            with pytest.raises(FileNotFoundError):
                await hand_over(tmp_path / "1.sock", served.fileno, b"")
            # Killed: its socket file is still there.
            killed = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            killed.bind(str(tmp_path / "1.sock"))
            killed.close()
            with pytest.raises(ConnectionRefusedError):
                await hand_over(tmp_path / "1.sock", served.fileno, b"")
            # Its successor takes the place.
            came: asyncio.Queue[bytes] = asyncio.Queue(1)

            def take(taken: socket.socket, data: bytes) -> None:
                taken.close()
                came.put_nowait(data)

            receiver = SocketReceiver(tmp_path / "1.sock", take)
            await hand_over(tmp_path / "1.sock", served.fileno, b"first")
            assert await came.get() == b"first"
            receiver.close()

    asyncio.run(story())


def test_a_sender_that_says_nothing_holds_up_none(tmp_path: Path) -> None:
    async def story() -> None:
        came: asyncio.Queue[bytes] = asyncio.Queue(1)

        def take(taken: socket.socket, data: bytes) -> None:
            taken.close()
            came.put_nowait(data)

        receiver = SocketReceiver(tmp_path / "1.sock", take)
        silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        silent.connect(str(tmp_path / "1.sock"))
        client, served = socket.socketpair()
        with client, served:
            await hand_over(tmp_path / "1.sock", served.fileno, b"spoken")
            assert await came.get() == b"spoken"
            # It speaks late.
            socket.send_fds(silent, [b"late"], [served.fileno()])
            assert await came.get() == b"late"
        # One that dies without a word leaves nothing behind.
        silent.close()
        dumb = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        dumb.connect(str(tmp_path / "1.sock"))
        dumb.close()
        await asyncio.sleep(0)
        receiver.close()

    asyncio.run(story())


def test_a_receiver_without_descriptors_does_not_spin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "_NO_FILES_S", 0.001)

    async def story() -> None:
        came: asyncio.Queue[bytes] = asyncio.Queue(1)

        def take(taken: socket.socket, data: bytes) -> None:
            taken.close()
            came.put_nowait(data)

        receiver = SocketReceiver(tmp_path / "1.sock", take)
        accept, tries, asked = receiver._listener.accept, 0, asyncio.Event()

        class NoFiles:
            """The listener of a process that has as many files open as it may."""

            fileno = receiver._listener.fileno
            close = receiver._listener.close

            def accept(self) -> object:
                nonlocal tries
                tries += 1
                asked.set()
                if tries < 3:
                    assert receiver._pause is None
                    raise OSError(errno.EMFILE, "too many open files")
                return accept()

        receiver._listener = NoFiles()  # type: ignore[assignment]  # as far as it is used
        client, served = socket.socketpair()
        with client, served:
            await hand_over(tmp_path / "1.sock", served.fileno, b"late")
            await asked.wait()
            assert receiver._pause is not None, "it is asked again at once"
            assert await came.get() == b"late"
        receiver.close()

    asyncio.run(story())

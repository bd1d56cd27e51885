"""The helper process of syncer.py: `python -I -S syncer_helper.py <socket fd>`.

Imports nothing but built-in modules: it must start in a few milliseconds and stay small.
"""

import _signal  # type: ignore[import-not-found]  # built in, has no stubs; `signal` would import enum
import _socket
import posix
import sys


def serve(socket: _socket.socket) -> None:
    """Answers requests until the other end closes."""
    files: dict[bytes, int] = {}
    while True:
        # Space of 32 bytes for ancillary data: one descriptor.
        message, ancillary, _, _ = socket.recvmsg(5, 32)
        if not message:
            return
        command, slot = message[:1], message[1:]
        if command == b"S":
            code = 0
            try:
                posix.fdatasync(files[slot])
            except OSError as error:
                code = error.errno or 5
            socket.send(slot + code.to_bytes(4, "little"))
        elif command == b"A":
            files[slot] = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
        else:
            posix.close(files.pop(slot))


if __name__ == "__main__":
    # The parent decides when the helper ends; a signal to the whole process group must not.
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
    try:
        serve(_socket.socket(fileno=int(sys.argv[1])))
    except ConnectionError:
        sys.exit(0)

"""A server that acknowledges and stores nothing: shows where the load generator itself ends.

    python -m bench.discard --ready-file FILE [--data IGNORED]

It answers every SEND at once. A reader gets as many entries as were published to its topic, made anew from
the first of them, so that the reader's checks hold. It is not a broker: one owner of everything, no flow of
time, no errors.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench import frames as f
from bench import protobuf as pb
from bench.payload import now_ms
from bench.publisher import BLOCK_BYTES
from bench.scan import split_command

READ_BYTES: Final = 4 << 20


@dataclass
class Topic:
    """What is remembered of a topic."""

    entries: int = 0
    first_frame: bytes = b""


class Session:
    """One connection."""

    def __init__(self, peer: socket.socket, topics: dict[str, Topic]) -> None:
        self.peer: Final = peer
        self._topics = topics
        self._producers: dict[int, Topic] = {}
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0
        self._out = bytearray()
        self._reader: Reader | None = None

    @property
    def wants_write(self) -> bool:
        """There is something to send."""
        return bool(self._out) or (self._reader is not None and self._reader.has_more)

    def readable(self) -> bool:
        """Read once and answer; False when the peer is gone."""
        try:
            count = self.peer.recv_into(self._view[self._end :])
        except BlockingIOError:
            return True
        if not count:
            return False
        self._end += count
        used = self._frames(self._view[: self._end])
        rest = self._end - used
        self._view[:rest] = self._view[used : self._end]
        self._end = rest
        self.writable()
        return True

    def writable(self) -> None:
        """Send what the peer takes."""
        try:
            while self.wants_write:
                if len(self._out) < BLOCK_BYTES and self._reader is not None:
                    self._out += self._reader.next_block()
                del self._out[: self.peer.send(self._out)]
        except BlockingIOError:
            pass

    def _frames(self, data: memoryview) -> int:
        at = 0
        while len(data) - at >= 8:
            length = int.from_bytes(data[at : at + 4], "big") + 4
            if len(data) - at < length:
                break
            kind, fields, _ = split_command(data[at : at + length])
            if kind == f.SEND:
                at += self._sends(data[at : at + (len(data) - at) // length * length], length, fields)
            else:
                self._command(kind, fields)
                at += length
        return at

    def _sends(self, data: memoryview, length: int, fields: pb.Fields) -> int:
        """Acknowledge the frames that look like the first of `data`; return their bytes."""
        producer_id, sequence_id = pb.number(fields, 1), pb.number(fields, 2)
        topic = self._producers[producer_id]
        if not topic.first_frame:
            topic.first_frame = bytes(data[:length])
        rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, length)
        column = bytes(rows[0, 8:64]).index(pb.field(2, sequence_id)) + 9
        same = (rows[:, :column] == rows[0, :column]).all(axis=1)
        count = len(rows) if same.all() else int(np.argmin(same))
        position = pb.field(1, 1) + pb.field(2, 1)
        receipt = f.command_frame(
            f.SEND_RECEIPT, pb.field(1, producer_id) + pb.field(2, sequence_id) + pb.field(3, position)
        )
        receipts = np.tile(np.frombuffer(receipt, dtype=np.uint8), (count, 1))
        at = receipt.index(pb.field(2, sequence_id), 8) + 1
        receipts[:, at : at + f.SEQUENCE_WIDTH] = rows[:count, column : column + f.SEQUENCE_WIDTH]
        self._out += receipts.tobytes()
        topic.entries += count
        return count * length

    def _command(self, kind: int, fields: pb.Fields) -> None:
        if kind == f.CONNECT:
            self._answer(f.CONNECTED, pb.field(1, "discard") + pb.field(2, 21))
        elif kind == f.LOOKUP:
            host, port = self.peer.getsockname()
            url = pb.field(1, f"pulsar://{host}:{port}")
            self._answer(f.LOOKUP_RESPONSE, url + pb.field(3, 1) + pb.field(4, pb.number(fields, 2)))
        elif kind == f.PRODUCER:
            self._producers[pb.number(fields, 2)] = self._topics.setdefault(pb.text(fields, 1), Topic())
            self._answer(f.PRODUCER_SUCCESS, pb.field(1, pb.number(fields, 3)) + pb.field(2, "discard-1"))
        elif kind == f.SUBSCRIBE:
            topic = self._topics.setdefault(pb.text(fields, 1), Topic())
            self._reader = Reader(topic) if topic.entries else None
            self._answer(f.SUCCESS, pb.field(1, pb.number(fields, 5)))
        elif kind == f.FLOW and self._reader is not None:
            self._reader.permits += pb.number(fields, 2)

    def _answer(self, kind: int, body: bytes) -> None:
        self._out += f.command_frame(kind, body)


class Reader:
    """Makes the entries of a topic anew for one consumer."""

    def __init__(self, topic: Topic) -> None:
        frame = memoryview(topic.first_frame)
        _, command, rest = split_command(frame)
        size = int.from_bytes(rest[6:10], "big")
        metadata = pb.decode(rest[10 : 10 + size])
        self._step = pb.number(metadata, 11, 1)
        payload = bytes(rest[10 + size :])
        message = payload
        if self._step > 1:
            single_size = int.from_bytes(payload[:4], "big")
            message = payload[4 + single_size : len(payload) // self._step]
        template = f.SendTemplate(
            producer_id=pb.number(command, 1),
            producer_name=pb.text(metadata, 1),
            message=message,
            messages_per_entry=self._step,
        )
        self._block = f.SendBlock(template, max(1, BLOCK_BYTES // len(frame)))
        self._rest_at = len(frame) - len(rest)
        body = pb.field(1, 1) + pb.field(2, pb.field(1, 1) + pb.field(2, 1))
        head = bytearray(f.command_frame(f.MESSAGE, body))
        head[:4] = (len(head) + len(rest) - 4).to_bytes(4, "big")
        self._head = np.frombuffer(bytes(head), dtype=np.uint8)
        self._entries = topic.entries
        self._sent = 0
        self.permits: int = 0

    @property
    def has_more(self) -> bool:
        """Permits and entries are left."""
        return self.permits > 0 and self._sent < self._entries

    def next_block(self) -> bytes:
        """The next MESSAGE frames, as many as permits and entries allow."""
        count = min(self._block.count, self._entries - self._sent, -(-self.permits // self._step))
        if count <= 0:
            return b""
        self._block.number(f.FIRST_SEQUENCE_ID + self._sent * self._step, now_ms())
        rows = self._block.frames[:count, self._rest_at :]
        self._sent += count
        self.permits -= count * self._step
        return np.hstack([np.tile(self._head, (count, 1)), rows]).tobytes()


def serve(ready_file: Path) -> None:
    """Serve until SIGTERM; write the addresses to `ready_file` when the port is open."""
    topics: dict[str, Topic] = {}
    selector = selectors.DefaultSelector()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        selector.register(server, selectors.EVENT_READ)
        url = f"pulsar://127.0.0.1:{server.getsockname()[1]}"
        partial = ready_file.with_suffix(".partial")
        partial.write_text(
            json.dumps({"pid": os.getpid(), "broker_url": url, "http_url": "", "data_dir": ""})
        )
        partial.rename(ready_file)
        while True:
            # A signal that comes right before the wait does not end it: its handler runs after a second.
            for key, events in selector.select(1.0):
                if key.data is None:
                    peer, _ = server.accept()
                    peer.setblocking(False)
                    selector.register(peer, selectors.EVENT_READ, Session(peer, topics))
                    continue
                session: Session = key.data
                peer = session.peer
                try:
                    alive = True
                    if events & selectors.EVENT_READ:
                        alive = session.readable()
                    if alive and events & selectors.EVENT_WRITE:
                        session.writable()
                except ConnectionError:
                    alive = False
                if not alive:
                    selector.unregister(peer)
                    peer.close()
                    continue
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if session.wants_write else 0)
                if wanted != key.events:
                    selector.modify(peer, wanted, session)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.discard", description=__doc__)
    parser.add_argument("--ready-file", type=Path, required=True)
    parser.add_argument("--data", help="taken and ignored, so that it starts like a broker")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    serve(options.ready_file)


if __name__ == "__main__":
    main()

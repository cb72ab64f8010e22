"""A way to PostgreSQL that breaks once, at a chosen statement: before it has arrived, or after it was done."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Line:
    """One client's connection: the words that are still to come, and whether answers get lost."""

    client: socket.socket
    server: socket.socket
    words: list[bytes]
    loses_answer: bool = False

    def cut(self) -> None:
        """End it on both sides; whoever waits for it sees the end."""
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@dataclass
class Severing:
    """Breaks the first connection on which the statements with these `words` come one after the
    other: at the last of them, losing it (`request`) or what the server says to it (`answer`)."""

    port: int
    words: tuple[str, ...]
    lost: str
    broken: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def open(self) -> Iterator[int]:
        """Let clients in; yields the port for them."""
        with socket.create_server(("127.0.0.1", 0)) as entrance:
            lines: list[Line] = []
            threads = [threading.Thread(target=self._accept, args=(entrance, lines))]
            threads[0].start()
            try:
                yield entrance.getsockname()[1]
            finally:
                with contextlib.suppress(OSError):
                    entrance.shutdown(socket.SHUT_RDWR)
                threads[0].join()
                for line in lines:
                    line.cut()

    def _accept(self, entrance: socket.socket, lines: list[Line]) -> None:
        pumps = []
        while True:
            try:
                client, _ = entrance.accept()
            except OSError:  # closed
                break
            server = socket.create_connection(("127.0.0.1", self.port))
            line = Line(client, server, [word.encode() for word in self.words])
            lines.append(line)
            for pump in (self._requests, self._answers):
                pumps.append(threading.Thread(target=pump, args=(line,)))
                pumps[-1].start()
        for line in lines:
            line.cut()
        for thread in pumps:
            thread.join()
        for line in lines:
            line.client.close()
            line.server.close()

    def _requests(self, line: Line) -> None:
        with contextlib.suppress(OSError):
            while data := line.client.recv(65536):
                if not self.broken.is_set() and self._is_the_one(line, data):
                    self.broken.set()
                    if self.lost == "request":
                        break
                    line.loses_answer = True
                line.server.sendall(data)
        line.cut()

    def _is_the_one(self, line: Line, data: bytes) -> bool:
        while line.words and line.words[0] in data:
            line.words.pop(0)
        return not line.words

    def _answers(self, line: Line) -> None:
        with contextlib.suppress(OSError):
            while data := line.server.recv(65536):
                if line.loses_answer:
                    break
                line.client.sendall(data)
        line.cut()

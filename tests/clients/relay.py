"""A TCP relay in front of a broker that can lose the broker's answers: what is stored and never acknowledged."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Relay:
    """Listens at `port` (0: a free one); every connection goes on to the port `to` of this host. A dead broker's clients
    are hung up on."""

    def __init__(self, to: int, port: int = 0) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.loses_answers = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    client.close()
                    continue
                for source, sink in ((client, broker), (broker, client)):
                    answers = source is broker
                    threading.Thread(
                        target=self._pump, args=(source, sink, answers), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not (answers and self.loses_answers):
                    sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        if answers:
            source.close()
            sink.close()

    def close(self) -> None:
        """No new connections; those that are there end with the broker."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

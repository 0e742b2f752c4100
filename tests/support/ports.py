"""Ports for programs that cannot choose one."""

import random
import socket


def unused_port() -> int:
    """Return a free port of 127.0.0.1 below those that the kernel gives to sockets which do not ask for one.

    One that the kernel chose may belong to a socket of another test before the program listens.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port

"""The user at the other end of a connection, by the kernel and by its tables."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from frameworkcontroller.local.apiserver.peer_credentials import Address, ask_kernel, look_up, peer_user, user_in_table
from tests.support.users import AS_NOBODY, NOBODY, nobodys_python

PEER, OWN = Address("127.0.0.1", 44058), Address("127.0.0.1", 35285)

HEAD = (
    b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
    b"                                                     \n"
)
TAIL = b"1 0000000000000000 20 4 30 10 -1\n"
QUEUES = b"00000000:00000000 00:00000000 00000000"


def row(local: bytes, remote: bytes, state: bytes, user: int, inode: int) -> bytes:
    return b"   0: %s %s %s %s %5d        0 %d %s" % (local, remote, state, QUEUES, user, inode, TAIL)


ENDS = (b"0100007F:AC1A", b"0100007F:89D5")
MAPPED = tuple(b"0000000000000000FFFF0000" + end for end in ENDS)
LISTENER = row(ENDS[1], b"00000000:0000", b"0A", 1001, 640000)
SERVERS_END = row(ENDS[1], ENDS[0], b"01", 1001, 642446)


pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="the tables were written down on such a machine")


def test_the_peers_end_counts_and_not_the_servers() -> None:
    table = HEAD + LISTENER + SERVERS_END + row(*ENDS, b"01", 1002, 642445)
    assert user_in_table(table, PEER, OWN) == 1002
    assert user_in_table(table, OWN, PEER) == 1001


def test_a_socket_that_was_closed_is_not_roots() -> None:
    assert user_in_table(HEAD + row(*ENDS, b"04", 0, 0), PEER, OWN) is None
    assert user_in_table(HEAD + row(*ENDS, b"06", 0, 0), PEER, OWN) is None
    # The same addresses may have been in use before.
    assert user_in_table(HEAD + row(*ENDS, b"06", 0, 0) + row(*ENDS, b"01", 1002, 7), PEER, OWN) == 1002


def test_an_ipv6_socket_that_speaks_ipv4() -> None:
    assert user_in_table(HEAD + row(MAPPED[0], MAPPED[1], b"01", 1002, 642445), PEER, OWN) == 1002


def test_ipv6() -> None:
    ends = (b"00000000000000000000000001000000:AC1A", b"00000000000000000000000001000000:89D5")
    table = HEAD + row(*ends, b"01", 1002, 642445)
    assert user_in_table(table, Address("::1", 44058), Address("::1", 35285)) == 1002


@pytest.mark.parametrize(
    "table",
    [
        b"",
        HEAD,
        HEAD + LISTENER + SERVERS_END,
        HEAD + row(b"0100007F:AC1B", ENDS[1], b"01", 1002, 7),
        HEAD + b"   0: %s %s 01 00000000" % ENDS,
    ],
    ids=["nothing", "empty", "others", "another port", "cut off"],
)
def test_no_such_connection(table: bytes) -> None:
    assert user_in_table(table, PEER, OWN) is None


def test_a_missed_socket_is_looked_up_again() -> None:
    tables = [[HEAD, HEAD], [HEAD, HEAD + row(MAPPED[0], MAPPED[1], b"01", 1002, 7)]]
    assert look_up(PEER, OWN, lambda: tables.pop(0)) == 1002
    assert tables == []


# --- real sockets ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=[peer_user, ask_kernel, look_up])
def asked(request: pytest.FixtureRequest) -> Callable[[Address, Address], int | None]:
    ask: Callable[[Address, Address], int | None] = request.param
    if ask is ask_kernel:
        try:
            ask_kernel(PEER, OWN)
        except OSError as error:
            pytest.skip(f"no sock_diag here: {error}")
    return ask


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_the_own_user(asked: Callable[[Address, Address], int | None], host: str) -> None:
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    try:
        listener = socket.create_server(("::1" if host == "::1" else "127.0.0.1", 0), family=family)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with listener, socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as client:
        # So that another may have its port afterwards.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind((host, 0))
        client.connect((host, listener.getsockname()[1]))
        end, peer = listener.accept()
        with end:
            addresses = Address(*peer[:2]), Address(*end.getsockname()[:2])
            assert asked(*addresses) == os.geteuid()
            # It has sent a byte, and is closed before the lookup.
            client.sendall(b"x")
            client.close()
            assert asked(*addresses) is None
        with socket.socket(family) as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(peer[:2])
            other.listen()
            assert asked(*addresses) is None


def test_another_user(asked: Callable[[Address, Address], int | None]) -> None:
    python = nobodys_python()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = f"import socket; s = socket.create_connection({listener.getsockname()!r}); s.recv(1)"
        with subprocess.Popen([python, "-I", "-c", program], **AS_NOBODY):
            end, peer = listener.accept()
            with end:
                assert asked(Address(*peer), Address(*end.getsockname())) == NOBODY

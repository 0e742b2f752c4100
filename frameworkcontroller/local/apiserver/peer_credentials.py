"""Finds the user at the other end of a local TCP connection.

It asks ``sock_diag`` (one look-up, microseconds), or else reads ``/proc/net/tcp`` (all connections of the machine,
milliseconds). Both have the same trap: **a socket that its process has closed is reported as root's**, and the process
may have sent a whole request before. Such a socket has no inode, and counts as unowned.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = 0

_LISTENING: Final = 10


class Address(NamedTuple):
    """An IP address and a TCP port."""

    host: str
    port: int


class PeersUnknownError(Exception):
    """This machine does not report users of connections."""


def peer_user(peer: Address, own: Address) -> int | None:
    """The user id of the process at ``peer``, the other end of a connection to ``own``.

    None if there is no such local connection, or no process has that end.

    Raises:
        PeersUnknownError: this machine does not report users.
    """
    found = _look(peer, own)
    if found == ROOT:
        # A socket may be closed between the reads of two fields. A second look is reliable.
        found = _look(peer, own)
    return found


def _look(peer: Address, own: Address) -> int | None:
    try:
        return ask_kernel(peer, own)
    except OSError:
        return look_up(peer, own)


def distinguishes_users() -> bool:
    """Whether user ids are distinct in this process's user namespace.

    Otherwise all outside users share one id, usually `nobody`.
    """
    try:
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
        mapped = Path("/proc/self/uid_map").read_text().split()
    except (OSError, ValueError):
        return False
    return os.geteuid() != overflow or mapped[:2] == ["0", "0"]


# --- sock_diag --------------------------------------------------------------------------------------------------------

_NETLINK_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ERROR: Final = 2
_ALL_STATES: Final = 0xFFFFFFFF
_NO_COOKIE: Final = 0xFFFFFFFF
_SECONDS: Final = 1.0

_HEADER: Final = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence number, port."""
_QUERY: Final = struct.Struct("=BBBxI")
"""The head of struct inet_diag_req_v2: family, protocol, extensions, states."""
_PORTS: Final = struct.Struct(">HH16s16s")
"""The head of struct inet_diag_sockid: own port, peer's port, own address, peer's address."""
_REST: Final = struct.Struct("=III")
"""The rest of it: interface, cookie."""
_REPLY: Final = struct.Struct("=BBBB48xIIIII")
"""struct inet_diag_msg: family, state, timer, retransmits, the above, expiry, two queues, user, inode."""


def ask_kernel(peer: Address, own: Address) -> int | None:
    """`peer_user` by ``sock_diag``. Raises OSError if it is unavailable."""
    family, peer_host = _packed(peer.host)
    _, own_host = _packed(own.host)
    body = _QUERY.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES)
    body += _PORTS.pack(peer.port, own.port, peer_host, own_host) + _REST.pack(0, _NO_COOKIE, _NO_COOKIE)
    head = _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as netlink:
        # The kernel answers synchronously.
        netlink.settimeout(_SECONDS)
        netlink.sendto(head + body, (0, 0))
        answer = netlink.recv(4096)
    kind = _HEADER.unpack_from(answer)[1]
    if kind == _ERROR:
        number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if number == errno.ENOENT:
            return None
        raise OSError(number, os.strerror(number))
    _, state, _, _, _, _, _, user, inode = _REPLY.unpack_from(answer, _HEADER.size)
    # Without such a connection, the kernel reports the listener on the peer's port.
    return user if kind == _BY_FAMILY and state != _LISTENING and inode else None


def _packed(host: str) -> tuple[int, bytes]:
    address = ip_address(host)
    return socket.AF_INET6 if address.version == 6 else socket.AF_INET, address.packed.ljust(16, b"\0")


# --- /proc ------------------------------------------------------------------------------------------------------------

_LOOKS: Final = 3
"""Attempts: the tables change while they are read, so an entry can be missed."""


def look_up(peer: Address, own: Address, tables: Callable[[], Iterable[bytes]] | None = None) -> int | None:
    """`peer_user` by ``/proc/net/tcp`` and ``tcp6``. Raises PeersUnknownError."""
    read = tables or _read_tables
    for _ in range(_LOOKS):
        for table in read():
            user = user_in_table(table, peer, own)
            if user is not None:
                return user
    return None


def _read_tables() -> Iterable[bytes]:
    try:
        yield Path("/proc/net/tcp").read_bytes()
    except OSError as error:
        raise PeersUnknownError(str(error)) from None
    try:
        yield Path("/proc/net/tcp6").read_bytes()
    except OSError:
        # A machine without IPv6.
        return


def user_in_table(table: bytes, peer: Address, own: Address) -> int | None:
    """The user id of the socket at ``peer`` in a table in the format of ``/proc/net/tcp``; see `peer_user`.

    IPv4 addresses of an IPv6 socket have the form ``::ffff:1.2.3.4``.
    """
    for mapped in (False, True):
        wanted = f" {_in_table(peer, mapped=mapped)} {_in_table(own, mapped=mapped)} ".encode()
        at = table.find(wanted)
        while at >= 0:
            end = table.find(b"\n", at)
            # State, queues, timer, retransmits, user, timeout, inode, and more.
            fields = table[at + len(wanted) : end if end >= 0 else None].split()
            if len(fields) > 6 and fields[6] != b"0":
                return int(fields[4])
            at = table.find(wanted, at + 1)
    return None


def _in_table(address: Address, *, mapped: bool) -> str:
    """Format in hexadecimal, in words of four bytes in this machine's byte order."""
    host = ip_address(address.host)
    if mapped and host.version == 4:
        host = IPv6Address(f"::ffff:{host}")
    words = (host.packed[at : at + 4] for at in range(0, len(host.packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{address.port:04X}"

"""Loopback addresses: one of its own for each Pod, and a network for Services.

On Linux all of 127.0.0.0/8 is loopback without set-up. Pods may use the same port if they listen on their own address
instead of 0.0.0.0.
"""

from __future__ import annotations

import ipaddress
import random
import socket
from collections.abc import Hashable
from functools import cache

# Systems use addresses in 127.0.0.0/16 themselves: 127.0.0.1, 127.0.1.1 (Debian's host name), 127.0.0.53.
_BLOCKS = range(16, 255)


class AddressPool:
    """Allocates addresses 127.B.y.z of one /16 block B, exclusive to this pool on this machine.

    Released addresses are reused last: a client of an ended Pod should find no listener rather than another Pod.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._claim, self._block = _claim_block(rng or random.Random())
        self._next = 0
        self._used: dict[Hashable, str] = {}
        self._taken: set[str] = set()

    def allocate(self, owner: Hashable) -> str:
        """The owner's address, the same until it is released. Raises RuntimeError if none is left."""
        if owner in self._used:
            return self._used[owner]
        for _ in range(254 * 254):
            third, fourth = divmod(self._next, 254)
            self._next = (self._next + 1) % (254 * 254)
            address = f"127.{self._block}.{third + 1}.{fourth + 1}"
            if address not in self._taken:
                self._used[owner] = address
                self._taken.add(address)
                return address
        raise RuntimeError("no Pod address is left")

    def release(self, owner: Hashable) -> None:
        """Release the owner's address, if it has one."""
        address = self._used.pop(owner, None)
        if address is not None:
            self._taken.discard(address)

    def close(self) -> None:
        """Release the block."""
        self._claim.close()


@cache
def service_network() -> ipaddress.IPv4Network:
    """The network of the cluster IPs of this process, exclusive on this machine until it ends."""
    claim, block = _claim_block(random.Random())
    claim.detach()  # closed by the end of the process
    return ipaddress.IPv4Network(f"127.{block}.0.0/16")


def _claim_block(rng: random.Random) -> tuple[socket.socket, int]:
    """Claim a block by a name in the abstract socket namespace.

    Such names, like loopback addresses, are unique per network namespace, and end with the process.
    """
    blocks = list(_BLOCKS)
    rng.shuffle(blocks)
    for block in blocks:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0frameworkcontroller-pods-127.{block}")
        except OSError:
            claim.close()
        else:
            return claim, block
    raise RuntimeError("other local clusters use all blocks of loopback addresses")

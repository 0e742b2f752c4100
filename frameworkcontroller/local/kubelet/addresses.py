"""Pod addresses: each Pod gets a loopback address of its own.

All of 127.0.0.0/8 is loopback on Linux without any set-up, so a process can listen on its Pod's address and another can
reach it there, and two Pods may use the same port, as long as they listen on their own address and not on 0.0.0.0.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Hashable

# 127.0.0.0/16 has the addresses that a system itself uses: 127.0.0.1, 127.0.1.1 (Debian's host name), 127.0.0.53.
_BLOCKS = range(16, 255)


class AddressPool:
    """Gives out addresses 127.B.y.z of one /16 block B, which no other pool on this machine uses meanwhile.

    An address given back is not used again before all others were: what still connects to an ended Pod finds nobody
    there, rather than another Pod.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._claim, self._block = _claim_block(rng or random.Random())
        self._next = 0
        self._used: dict[Hashable, str] = {}
        self._taken: set[str] = set()

    def take(self, owner: Hashable) -> str:
        """The owner's address, always the same until it is given back. Raises RuntimeError if none is left."""
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

    def give_back(self, owner: Hashable) -> None:
        """The owner needs its address no more; it need not have one."""
        address = self._used.pop(owner, None)
        if address is not None:
            self._taken.discard(address)

    def close(self) -> None:
        """Let other pools have the block."""
        self._claim.close()


def _claim_block(rng: random.Random) -> tuple[socket.socket, int]:
    """A name in the abstract socket namespace is the claim: it is one per network namespace, as loopback addresses are,
    and it ends with the process that holds it."""
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
    raise RuntimeError("every block of loopback addresses is in use by another local cluster")

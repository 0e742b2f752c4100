"""Sums a vector over all workers, in a ring: at each round, a chunk goes to the next worker, and another one comes."""

import array
import os
import socket
import threading
import time

env = os.environ
addresses = env["FB_WORKER_ADDRESSES"].split(",")
rank, size = int(env["FC_TASK_INDEX"]), len(addresses)
LENGTH = 250_000 * size


def to_next():
    """A connection to the next worker; the barrier says where it is, not that it listens yet."""
    host, _, port = addresses[(rank + 1) % size].rpartition(":")
    deadline = time.monotonic() + 300
    while True:
        try:
            return socket.create_connection((host.strip("[]"), int(port)), 5)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def exchange(chunk):
    """Send a chunk on while the one from behind comes in."""
    sending = threading.Thread(target=following.sendall, args=(chunk.tobytes(),))
    sending.start()
    data = bytearray()
    while len(data) < 8 * len(chunk):
        part = preceding.recv(8 * len(chunk) - len(data))
        if not part:
            raise ConnectionError("the worker before me is gone")
        data += part
    sending.join()
    return array.array("d", bytes(data))


family = socket.AF_INET6 if ":" in env["POD_IP"] else socket.AF_INET
listener = socket.create_server((env["POD_IP"], int(env["FB_WORKER_PORT"])), family=family)
following, (preceding, _) = to_next(), listener.accept()
began = time.monotonic()
step = LENGTH // size
chunks = [array.array("d", [rank + 1.0]) * step for _ in range(size)]
for turn in range(size - 1):  # after these, chunk rank + 1 is the sum of all here
    come = exchange(chunks[(rank - turn) % size])
    mine = chunks[(rank - turn - 1) % size]
    chunks[(rank - turn - 1) % size] = array.array("d", (one + other for one, other in zip(mine, come, strict=True)))
for turn in range(size - 1):  # and after these, every chunk is
    chunks[(rank - turn) % size] = exchange(chunks[(rank - turn + 1) % size])
expected = size * (size + 1) / 2
assert all(value == expected for chunk in chunks for value in chunk)
took = time.monotonic() - began
print(f"worker {rank} of {size}: every one of {LENGTH} sums is {expected:g}, after {took:.2f} s")

"""Master, worker or driver of a small cluster, by the role of the Task."""

import math
import os
import queue
import socket
from multiprocessing.managers import BaseManager

env = os.environ
role, me = env["FC_TASKROLE_NAME"], env["FC_POD_NAME"]
# Clients that reach the master can run any code: on a shared cluster, take a key from a Secret.
KEY = env["FC_FRAMEWORK_ATTEMPT_INSTANCE_UID"].encode()
PORT, PARTS, STEP = 7077, 40, 5_000


class Master(BaseManager):
    """Hold the queues, and serve them to clients."""


def primes(first):
    """How many primes there are from `first` on, within a step."""
    numbers = range(max(first, 2), first + STEP)
    return sum(all(number % divisor for divisor in range(2, math.isqrt(number) + 1)) for number in numbers)


def connected():
    """The master's queues."""
    master = Master((env["MASTER"], PORT), authkey=KEY)
    for name in ("work", "results"):
        Master.register(name)
    master.connect()
    return master.work(), master.results()


if role == "master":
    work, results = queue.Queue(), queue.Queue()
    Master.register("work", callable=lambda: work)
    Master.register("results", callable=lambda: results)
    print(f"{me}: serves at {env['POD_IP']}")
    Master((env["POD_IP"], PORT), authkey=KEY).get_server().serve_forever()
elif role == "worker":
    work, results = connected()
    while True:
        part = work.get()
        found = primes(part)
        results.put((part, found, me))
        print(f"{me}: {found} primes from {part} on")
else:
    work, results = connected()
    missing = {part * STEP for part in range(PARTS)}
    for part in missing:
        work.put(part)
    total, by = 0, set()
    while missing:
        try:
            part, found, who = results.get(timeout=5)
        except queue.Empty:
            for part in missing:  # its worker has died
                work.put(part)
            continue
        if part in missing:  # the second answer is not counted
            missing.remove(part)
            total += found
            by.add(who)
    print(f"{me} on {socket.gethostname()}: {total} primes below {PARTS * STEP}, counted by {sorted(by)}")
    assert total == 17984

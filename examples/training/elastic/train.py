"""Data-parallel training that continues while workers come, leave and die.

Every worker holds the whole model. At each step, each worker computes its share of one batch, the gradients are summed
over all workers, and all update the model equally: the number of workers changes the speed, but not the result. The
workers need no permanent leader and no list of members: they read the status of their Framework.

  Members          are the Tasks that are AttemptRunning and not deletionPending. The one with the lowest index leads.
  All meet         at the leader's address, and begin when all have read the same list (its instanceUIDs distinguish the
                   attempts of a Task). The most advanced member gives its state to the others.
  A member comes   The leader reads the status once a second. A flag in the sum of the gradients stops all members after
                   the same step, and they meet again.
  A member leaves  A member that is scaled down or drained gets SIGTERM, and sets that flag.
  A member dies    The sum fails for all, and they meet again. The controller retries the Task, and a member comes.
  All die          They begin at the checkpoint.

With PyTorch, the sum is torch.distributed's all_reduce on gloo; without, it uses plain sockets. Outside of a Framework
it trains alone, with the same result:  STEPS=500 python3 train.py
"""

import array
import contextlib
import datetime as dt
import json
import math
import os
import random
import signal
import socket
import ssl
import sys
import time
import urllib.request
from pathlib import Path

from model import BATCH, SIZE, batch, gradient, torch

if torch:
    from torch import distributed

env = os.environ
ALONE = "FC_FRAMEWORK_NAME" not in env
STEPS = int(env.get("STEPS", "1000"))
STEP_SECONDS = float(env.get("STEP_SECONDS", "0"))  # the minimum duration of a step, as of a larger model
FOLDER = Path(env.get("CHECKPOINTS", "."))  # shared by all workers; a file named `enough` there ends the training early
CHECKPOINT = FOLDER / f"checkpoint-{env.get('FC_FRAMEWORK_UID', 'alone')}.json"  # outlives all attempts
ME = env.get("FC_TASK_INDEX", "alone")
PORT = 29400
RATE, MOMENTUM = 0.2, 0.9
stopping = []  # filled by SIGTERM


def say(text):
    print(f"{time.strftime('%H:%M:%S')} worker {ME}: {text}", flush=True)


# --- The members, and how they meet. After any failure here, they read the list again. ---


def members():
    """[index, address, instanceUID] of every running worker that stays, from the Framework's status."""
    account = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    api, context = env.get("KUBE_APISERVER_ADDRESS"), None
    if not api:
        api = f"https://{env['KUBERNETES_SERVICE_HOST']}:{env['KUBERNETES_SERVICE_PORT']}"
        context = ssl.create_default_context(cafile=account / "ca.crt")
    path = f"namespaces/{env['FC_FRAMEWORK_NAMESPACE']}/frameworks/{env['FC_FRAMEWORK_NAME']}"
    headers = {"Authorization": f"Bearer {(account / 'token').read_text()}"}
    request = urllib.request.Request(f"{api}/apis/frameworkcontroller.microsoft.com/v1/{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=5, context=context) as answer:
        roles = json.load(answer)["status"]["attemptStatus"]["taskRoleStatuses"]
    (tasks,) = [role["taskStatuses"] for role in roles if role["name"] == env["FC_TASKROLE_NAME"]]
    staying = [task for task in tasks if task["state"] == "AttemptRunning" and not task["deletionPending"]]
    attempts = [(task["index"], task["attemptStatus"]) for task in staying]
    return [[index, attempt["podIP"], attempt["instanceUID"]] for index, attempt in attempts if attempt["podIP"]]


def changed(group):
    """Whether the list has changed. False while the API server does not answer."""
    with contextlib.suppress(OSError, ValueError):
        return not ALONE and members() != group.now
    return False


def serve(address, port):
    return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)


def meet(listener, step):
    """Wait for all other members. Return the group, and the rank of the most advanced member."""
    while not stopping:
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            now = members()
            instances = [instance for _, _, instance in now]
            rank = instances.index(env["FC_TASK_ATTEMPT_INSTANCE_UID"])  # ValueError: not in the status yet
            with contextlib.ExitStack() as unless_met:
                if rank:
                    peers, agreed = follow(now, rank, step, unless_met)
                else:
                    peers, agreed = lead(listener, now, step, unless_met)
                group = Gloo(now, rank, peers, agreed["port"]) if torch else Star(now, rank, peers)
                unless_met.pop_all()
            return group, agreed["furthest"]
        time.sleep(0.2)
    sys.exit(143)


def lead(listener, now, step, unless_met):
    arrived, steps = {}, {0: step}
    listener.settimeout(0.1)
    while len(steps) < len(now):
        if stopping or members() != now:
            raise OSError("a member comes or leaves")
        with contextlib.suppress(TimeoutError):
            peer = unless_met.enter_context(listener.accept()[0])
            hello = json.loads(receive_line(peer))
            if hello["list"] == now:
                arrived[hello["rank"]], steps[hello["rank"]] = peer, hello["step"]
            else:
                peer.close()
    with serve(now[0][1], 0) as free:  # a port for torch's store
        agreed = {"furthest": max(steps, key=steps.get), "port": free.getsockname()[1]}
    for peer in arrived.values():
        peer.sendall(json.dumps(agreed).encode() + b"\n")
    return [arrived[rank] for rank in sorted(arrived)], agreed


def follow(now, rank, step, unless_met):
    leader = unless_met.enter_context(socket.create_connection((now[0][1], PORT), 2))
    leader.sendall(json.dumps({"list": now, "rank": rank, "step": step}).encode() + b"\n")
    return [leader], json.loads(receive_line(leader))


def receive_line(peer):
    peer.settimeout(10)
    with peer.makefile() as lines:
        return lines.readline()  # empty, and so no JSON, after the peer hung up


class Star:
    """Sum lists over the members: the leader collects, adds and returns. A failure of one fails for all."""

    def __init__(self, now, rank, peers):
        self.now, self.rank, self.peers = now, rank, peers

    def sum(self, values):
        own = array.array("d", values)
        if self.rank:
            self.peers[0].sendall(own.tobytes())
            return self.receive(self.peers[0], len(own))
        theirs = [self.receive(peer, len(own)) for peer in self.peers]
        total = [math.fsum(values) for values in zip(own, *theirs, strict=True)]
        for peer in self.peers:
            peer.sendall(array.array("d", total).tobytes())
        return total

    def receive(self, peer, length):
        data = b""
        while len(data) < 8 * length:
            part = peer.recv(8 * length - len(data))
            if not part:
                raise OSError("a member is gone")
            data += part
        return array.array("d", data).tolist()

    def close(self):
        for peer in self.peers:
            peer.close()


class Gloo(Star):
    """The same by torch.distributed."""

    def __init__(self, now, rank, peers, port):
        super().__init__(now, rank, peers)
        limit = dt.timedelta(seconds=10)
        store = distributed.TCPStore(now[0][1], port, len(now), rank == 0, limit, wait_for_workers=False)
        distributed.init_process_group("gloo", timeout=limit, store=store, rank=rank, world_size=len(now))

    def sum(self, values):
        total = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(total)
        return total.tolist()

    def close(self):
        distributed.destroy_process_group()
        super().close()


# --- The training. ---


def save(path, step, loss, state):
    new = path.with_suffix(f".{ME}")
    new.write_text(json.dumps({"step": step, "loss": loss, "state": state}))
    new.replace(path)  # atomic: a reader finds the old or the new one


def train():
    rng, step, last, loss = random.Random(0), 0, STEPS, 0.0
    state = [rng.uniform(-1, 1) for _ in range(SIZE)] + [0.0] * SIZE  # parameters, and their velocities
    if CHECKPOINT.exists():
        step, loss, state = json.loads(CHECKPOINT.read_text()).values()
    say(f"process {os.getpid()} begins at step {step}, with {'torch on gloo' if torch else 'plain Python'}")
    listener = None if ALONE else serve(env["POD_IP"], PORT)
    while step < last:
        group, furthest = (Star([["alone"]], 0, []), 0) if ALONE else meet(listener, step)
        rank, size, looked, change = group.rank, len(group.now), time.monotonic(), False
        try:
            # A sum in which all others are zero is a broadcast.
            step, *state = group.sum([step, *state] if rank == furthest else [0] * (1 + len(state)))
            step = int(step)
            say(f"step {step}: I am {rank} of {[index for index, *_ in group.now]}")
            while step < last and not change:
                began, enough = time.monotonic(), False
                loss, slopes = gradient(state[:SIZE], batch(step)[rank::size])
                if rank == 0 and began - looked > 1:
                    looked, change = began, changed(group)
                    enough = (FOLDER / "enough").exists()
                    save(CHECKPOINT, step, loss, state)
                loss, change, enough, *slopes = group.sum([loss, change or bool(stopping), enough, *slopes])
                velocity = [MOMENTUM * v - RATE * slope / BATCH for v, slope in zip(state[SIZE:], slopes, strict=True)]
                state = [p + v for p, v in zip(state[:SIZE], velocity, strict=True)] + velocity
                step, loss = step + 1, loss / BATCH
                last = step if enough else last
                if rank == 0 and (step % 50 == 0 or step == last):
                    say(f"step {step}: loss {loss:.4f}, with {size}")
                time.sleep(max(0, began + STEP_SECONDS - time.monotonic()))
        except (OSError, RuntimeError) as error:
            say(f"step {step}: a sum failed: {str(error)[:100]}")
        finally:
            group.close()
        if stopping and step < last:
            say(f"step {step}: stopping on SIGTERM")
            sys.exit(143)
    save(FOLDER / "result.json", step, loss, state)  # by each member, since any may be the last
    say("done")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    train()

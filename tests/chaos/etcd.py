"""A real API server's own record: the history of its etcd, read by etcd's JSON gateway.

kube-apiserver must store JSON and forget nothing: `KEEPING_THE_RECORD`. Every write is in there, in order, no matter
how watches and kube-apiserver itself fared.
"""

import base64
import json
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

from tests.chaos.record import KINDS, Write

KEEPING_THE_RECORD: Final = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")

_BEGIN: Final = "/registry/"
_MARK: Final = "/registry/~end-of-record"
_FOLDERS: Final = {
    "/registry/pods/": "pods",
    "/registry/configmaps/": "configmaps",
    "/registry/frameworkcontroller.microsoft.com/frameworks/": "frameworks",
}


def read_record(url: str, revision: int = 1) -> tuple[dict[str, list[Write]], int]:
    """The writes from that revision up to now, by namespace, and the last revision. Blocks while it reads."""
    _ask(url, "/v3/kv/put", {"key": _encoded(_MARK), "value": ""})
    found: dict[str, list[Write]] = {}
    for event in _events(url, revision):
        pair = event["kv"]
        key = base64.b64decode(pair["key"]).decode()
        if key == _MARK:
            return found, int(pair["mod_revision"])
        kind = next((kind for folder, kind in _FOLDERS.items() if key.startswith(folder)), None)
        if kind is None:
            continue
        *_, namespace, name = key.split("/")
        body = None
        if event.get("type") != "DELETE":
            body = json.loads(base64.b64decode(pair["value"]))
            body["metadata"]["resourceVersion"] = pair["mod_revision"]
        found.setdefault(namespace, []).append(Write(int(pair["mod_revision"]), KINDS[kind], name, body))
    raise RuntimeError("etcd's history ends before its last write")


def compact(url: str, revision: int) -> None:
    """Have etcd compact the revisions before that one."""
    _ask(url, "/v3/kv/compaction", {"revision": str(revision), "physical": True})


def now(url: str) -> int:
    """The revision of the next write."""
    answer = json.loads(_ask(url, "/v3/kv/range", {"key": _encoded(_BEGIN), "limit": "1", "keys_only": True}))
    return int(answer["header"]["revision"]) + 1


def _events(url: str, revision: int) -> Iterator[dict[str, Any]]:
    wanted = {"key": _encoded(_BEGIN), "range_end": _encoded("/registry0"), "start_revision": str(revision)}
    request = urllib.request.Request(f"{url}/v3/watch", data=json.dumps({"create_request": wanted}).encode())
    with urllib.request.urlopen(request, timeout=120) as response:
        for line in response:
            result = json.loads(line)["result"]
            if result.get("canceled"):
                raise RuntimeError(f"etcd does not tell its history: {result}")
            yield from result.get("events", ())


def _ask(url: str, path: str, body: dict[str, Any]) -> bytes:
    request = urllib.request.Request(url + path, data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as response:
        answer: bytes = response.read()
    return answer


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()

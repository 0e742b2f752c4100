"""Reading the Framework, and the addresses of its Tasks."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from frameworkcontroller.barrier.apiserver import MOST_BYTES, Server
from frameworkcontroller.barrier.exits import EXIT_REFUSED, EXIT_TIMED_OUT, CheckFailed, WrongFramework
from frameworkcontroller.barrier.settings import AWAITED_NAMES, HOSTFILE_ROLES, Settings

_MOST_VALUES = 2000000  # of an uncompressed status; 10,000 Tasks need a third
_MOST_TASKS = 10000  # of a role
_LARGE_BYTES = 64 << 10  # a Framework of this size is read again only after a change

_FRAMEWORKS = "/apis/frameworkcontroller.microsoft.com/v1/namespaces/%s/frameworks/%s"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"


class Reader:
    """Reads one Framework from an API server."""

    def __init__(self, server: Server, settings: Settings) -> None:
        self._server = server
        self._settings = settings
        self._path = _FRAMEWORKS % (settings.namespace, settings.name)
        self._large_version: str | None = None

    def read(self, timeout: float, cached: bool) -> tuple[dict[str, Any], dict[str, list[str | None]]] | None:
        """Return the Framework and its ``addresses``; None if it has not changed since the last read.

        The Framework has uncompressed task role statuses. It is the one of this Pod, and in the attempt of this Pod.
        ``cached``: read from the API server's cache, which is cheap and may be stale. ``timeout``: seconds.
        Raises WrongFramework, CheckFailed.
        """
        path = self._path + "?resourceVersion=0" if cached else self._path
        if cached and self._large_version is not None:
            # Serializing a large Framework takes the API server many milliseconds; its metadata show a change.
            found = _decoded(self._get(path, _METADATA_ONLY, timeout))
            if found["metadata"].get("resourceVersion") == self._large_version:
                return None
        body = self._get(path, "application/json", timeout)
        framework = _decoded(body)
        _unpack(framework)
        _check_identity(framework, self._settings)
        ips = addresses(framework, self._settings.role, self._settings.hostfile_roles)
        _check_needs(framework, self._settings)
        # Not before: a Framework that cannot be used must not pass for an unchanged one.
        self._large_version = framework["metadata"].get("resourceVersion") if len(body) >= _LARGE_BYTES else None
        return framework, ips

    def _get(self, path: str, accept: str, timeout: float) -> bytes:
        code, headers, body = self._server.get(path, accept, timeout)
        if code == 200:
            return body
        try:
            status = json.loads(body.decode("utf-8"))
            message = str(status["message"])
        except (ValueError, KeyError, TypeError):
            status, message = {}, body[:300].decode("utf-8", "replace").strip()
        details = status.get("details")
        if code == 404 and isinstance(details, dict) and details.get("name") == self._settings.name:
            raise WrongFramework(
                f"there is no Framework {self._settings.namespace}/{self._settings.name}", EXIT_REFUSED
            )
        if code == 404:
            message += " (does it know the kind Framework?)"
        elif code == 403:
            message += " (its user needs permission to `get` Frameworks)"
        after = headers.get("retry-after", "")
        raise CheckFailed(
            f"{self._server.address}: {code}: {' '.join(message.split())[:500]}",
            float(after) if re.fullmatch(r"[0-9]{1,4}", after) else 0.0,
        )


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        framework = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckFailed(f"the answer is not JSON: {error}") from error
    if not isinstance(framework, dict) or not isinstance(framework.get("metadata"), dict):
        raise CheckFailed("the answer is not a Framework")
    return framework


def _attempt_status(framework: dict[str, Any]) -> dict[str, Any]:
    status = framework.get("status")
    attempt = status.get("attemptStatus") if isinstance(status, dict) else None
    return attempt if isinstance(attempt, dict) else {}


def _unpack(framework: dict[str, Any]) -> None:
    """Uncompress the task role statuses in place. Raises CheckFailed."""
    attempt = _attempt_status(framework)
    compressed = attempt.pop("taskRoleStatusesCompressed", None)
    if attempt.get("taskRoleStatuses") is not None or not compressed:
        return
    try:
        packed = base64.b64decode(compressed, validate=True)
        inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
        roles = inflater.decompress(packed, MOST_BYTES)
        if not inflater.eof:
            problem = "is larger than any status" if len(roles) == MOST_BYTES else "is cut short"
            raise CheckFailed(f"taskRoleStatusesCompressed {problem}")
        if _holds_too_much(roles):
            raise CheckFailed("taskRoleStatusesCompressed has more values than any status")
        attempt["taskRoleStatuses"] = json.loads(roles.decode("utf-8"))
    except (ValueError, TypeError, zlib.error, RecursionError) as error:
        raise CheckFailed(f"taskRoleStatusesCompressed cannot be read: {error}") from error


def _holds_too_much(raw: bytes) -> bool:
    """True if the JSON text has more values than any status: parsed, a value takes much more memory than its text."""
    if _marks(raw) <= _MOST_VALUES:
        return False
    # The marks may be inside strings, such as the messages of containers. A string without an end is matched, too: to
    # search the end again from each quote within takes quadratic time.
    texts = (raw.count(b'"') - raw.count(b'\\"')) // 2
    return texts > _MOST_VALUES or _marks(re.sub(rb'"(?:[^"\\]|\\.)*"?', b"", raw, flags=re.DOTALL)) > _MOST_VALUES


def _marks(raw: bytes) -> int:
    return sum(raw.count(mark) for mark in (b",", b":", b"[", b"{"))


def addresses(
    framework: dict[str, Any], own_role: str | None = None, needed: Sequence[str] = ()
) -> dict[str, list[str | None]]:
    """The IPs of the Tasks of the spec, by role and ordered by index; None for a Task without an IP.

    A Task with deletionPending does not count: another one replaces it, or the spec no longer contains it. Neither do
    roles that wait for ``own_role``, which would wait for them, and roles that have not started, unless ``needed``.
    Raises CheckFailed if the Framework is malformed, or contains a name or an IP that is unsafe in a shell.
    """
    try:
        roles = _attempt_status(framework).get("taskRoleStatuses") or ()
        started = {role["name"] for role in roles if role.get("started")}
        statuses = {
            role["name"]: {
                task["index"]: task["attemptStatus"].get("podIP")
                for task in role.get("taskStatuses") or ()
                if not task.get("deletionPending")
            }
            for role in roles
        }
        wanted: dict[str, list[str | None]] = {}
        specs = (framework.get("spec") or {}).get("taskRoles") or ()
        awaited = _dependencies(specs)
        left_out = _dependents(awaited, own_role)
        for role in specs:
            name, number = role["name"], role.get("taskNumber")
            if re.fullmatch(r"[a-z0-9]{1,63}", name) is None:
                raise ValueError(f"{name!r} is no name of a TaskRole")
            is_waiting = bool(awaited[name]) and name not in started and name != own_role
            if name in left_out or (is_waiting and name not in needed):
                continue
            found = statuses.get(name, {})
            number = 1 if number is None else number
            if number > _MOST_TASKS:
                raise ValueError(f"{number!r} is no taskNumber")
            wanted[name] = [_checked(found.get(index)) for index in range(number)]
        return wanted
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckFailed(f"the Framework is not as it should be: {type(error).__name__}: {error}") from error


def _dependencies(specs: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    """The roles that each role waits for."""
    return {role["name"]: {one["name"] for one in role.get("dependsOn") or ()} for role in specs}


def _check_needs(framework: dict[str, Any], settings: Settings) -> None:
    """Raise WrongFramework for a role of the host file that does not exist, and for roles that wait for this Pod."""
    awaited = _dependencies((framework.get("spec") or {}).get("taskRoles") or ())
    waiting = _dependents(awaited, settings.role)
    needed = [(HOSTFILE_ROLES, role, role) for role in settings.hostfile_roles]
    for name in settings.awaited_names:
        parts = name.partition(".")[0].split("-")
        if len(parts) == 3 and parts[0] == settings.name and parts[1] in awaited:
            needed.append((AWAITED_NAMES, name, parts[1]))
    for variable, value, role in needed:
        if role not in awaited:
            raise WrongFramework(f"${variable}: {value!r} is no TaskRole", EXIT_REFUSED)
        if role in waiting:
            problem = f"TaskRole {role} waits for {settings.role}, the role of this Pod"
            raise WrongFramework(f"${variable}: {value!r}: {problem}", EXIT_REFUSED)


def _dependents(awaited: dict[str, set[str]], role: str | None) -> set[str]:
    """The roles that depend on ``role``, directly or through others."""
    waiting: dict[str | None, list[str]] = {}
    for name, others in awaited.items():
        for other in others:
            waiting.setdefault(other, []).append(name)
    found: set[str] = set()
    todo = [role]
    while todo:
        for name in waiting.get(todo.pop(), ()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return found


def _checked(ip: Any) -> str | None:
    if not isinstance(ip, (str, type(None))):
        raise TypeError(f"{ip!r} is no IP")
    return str(ipaddress.ip_address(ip)) if ip else None


def _check_identity(framework: dict[str, Any], settings: Settings) -> None:
    """Raise WrongFramework if this Pod does not belong to the Framework or to its current attempt.

    Raises CheckFailed for an earlier attempt than the Pod's, which only a stale cache can show.
    """
    uid = framework["metadata"].get("uid")
    if settings.uid is not None and uid != settings.uid:
        raise WrongFramework(
            f"the Framework {settings.namespace}/{settings.name} of this Pod is gone: "
            f"the one of that name has UID {uid}, not {settings.uid}",
            EXIT_REFUSED,
        )
    if settings.attempt is None:
        return
    wanted_id, wanted_uid = settings.attempt
    attempt = _attempt_status(framework)
    current_id, current_uid = attempt.get("id"), attempt.get("configMapUID")
    if not isinstance(current_id, int) or current_id < wanted_id:
        raise CheckFailed(f"the Framework does not show attempt {wanted_id} yet")
    if current_id > wanted_id or (current_uid is not None and current_uid != wanted_uid):
        # The controller deletes this Pod and ignores its exit code. For any other reader, a retry is the harmless code.
        raise WrongFramework(
            f"attempt {wanted_id}_{wanted_uid}, which this Pod belongs to, is over: "
            f"the Framework is at {current_id}_{current_uid}",
            EXIT_TIMED_OUT,
        )

"""The subresources: a Pod's binding, eviction, log and commands, and the scale of any type."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson
from aiohttp import web

from frameworkcontroller.local.apiserver import api_errors
from frameworkcontroller.local.apiserver.api_resources import ScalePaths
from frameworkcontroller.local.apiserver.endpoints import Endpoint
from frameworkcontroller.local.apiserver.handlers import patch_call, patcher
from frameworkcontroller.local.apiserver.http_bodies import ServedRequest, document_answer, text_answer
from frameworkcontroller.local.apiserver.object_records import Json, ObjectRecord
from frameworkcontroller.local.apiserver.options import Call, boolean, delete_options, first, integer, write_call
from frameworkcontroller.local.apiserver.pod_exec import serve_exec
from frameworkcontroller.local.apiserver.pod_logs import PodLogs
from frameworkcontroller.local.apiserver.pod_strategy import bind, evict
from frameworkcontroller.local.apiserver.registry import Registry

_EVICTIONS: Final = frozenset({("", ""), ("policy/v1", "Eviction"), ("policy/v1beta1", "Eviction")})
"""API versions and kinds of the body: kubectl sends one or the other, by the version of the server that it sees."""


def create_binding(registry: Registry, request: ServedRequest, endpoint: Endpoint) -> web.Response:
    """POST to ``pods/NAME/binding``."""
    call = write_call("create", request.agent, request.query, "CreateOptions")
    binding, _ = request.parsed()
    if not isinstance(binding, dict):
        raise api_errors.bad_request("the object provided is unrecognized (must be of type Binding)")
    binding = {**binding, "metadata": {"name": request.path.name, **(binding.get("metadata") or {})}}
    bind(registry, endpoint, request.path.namespace, binding, call)
    return document_answer({**api_errors.success(), "code": 201}, code=201)


def create_eviction(registry: Registry, request: ServedRequest, endpoint: Endpoint) -> web.Response:
    """POST to ``pods/NAME/eviction``."""
    eviction, _ = request.parsed()
    if not isinstance(eviction, dict):
        raise api_errors.bad_request("the object provided is unrecognized (must be of type Eviction)")
    version, kind = eviction.get("apiVersion") or "", eviction.get("kind") or ""
    if (version, kind) not in _EVICTIONS:
        short = version.rpartition("/")[2]
        raise api_errors.bad_request(f'{kind} in version "{short}" cannot be handled as a Eviction')
    metadata = eviction.get("metadata") or {}
    if metadata.get("namespace") not in {None, "", request.path.namespace}:
        raise api_errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if metadata.get("name") != request.path.name:
        raise api_errors.bad_request("name in URL does not match name in Eviction object")
    given = eviction.get("deleteOptions") or {}
    options, dry_run = delete_options({}, orjson.dumps({**given, "kind": "DeleteOptions"}))
    call = Call("create", request.agent, dry_run=dry_run or bool(first(request.query, "dryRun")))
    evict(registry, endpoint, request.path.namespace, request.path.name, options, call)
    return document_answer({**api_errors.success(), "code": 201}, code=201)


@dataclass(frozen=True, slots=True)
class _LogOptions:
    container: str
    follow: bool
    previous: bool
    timestamps: bool
    tail_lines: int | None
    since_seconds: float | None
    limit_bytes: int | None


async def read_log(
    registry: Registry, logs: PodLogs | None, request: ServedRequest, endpoint: Endpoint
) -> web.StreamResponse:
    """GET of ``pods/NAME/log``, as text."""
    path = request.path
    record = registry.get(endpoint, path.namespace, path.name)
    pod = record.document()
    options = _log_options(request, pod, registry.wall())
    if logs is None or not pod["spec"].get("nodeName"):
        # No runtime, so there is no log.
        return text_answer("")
    chunks = logs.read(
        path.namespace,
        path.name,
        options.container,
        follow=options.follow,
        tail_lines=options.tail_lines,
        since_seconds=options.since_seconds,
        limit_bytes=options.limit_bytes,
        timestamps=options.timestamps,
        previous=options.previous,
    )
    response = web.StreamResponse(headers={"Cache-Control": "no-cache, private", "Content-Type": "text/plain"})
    try:
        # Read the first chunk before sending headers: until then, an error can still be answered.
        head = await _first(chunks)
        await response.prepare(request.http)
        if head is not None:
            await response.write(head)
            async for chunk in chunks:
                await response.write(chunk)
        await response.write_eof()
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
    return response


async def _first(chunks: AsyncIterator[bytes]) -> bytes | None:
    try:
        return await anext(chunks)
    except StopAsyncIteration:
        return None
    except LookupError as error:
        raise api_errors.bad_request(str(error)) from None


def _log_options(request: ServedRequest, pod: Json, now: float) -> _LogOptions:
    query = request.query
    since_time, since_seconds = first(query, "sinceTime"), integer(query, "sinceSeconds")
    since: float | None = since_seconds
    if since_time:
        try:
            since = max(0.0, now - datetime.fromisoformat(since_time).timestamp())
        except ValueError as error:
            raise api_errors.bad_request(f'parsing time "{since_time}": {error}') from None
    return _LogOptions(
        container=_container(first(query, "container"), request.path.name, pod),
        follow=boolean(query, "follow"),
        previous=boolean(query, "previous"),
        timestamps=boolean(query, "timestamps"),
        tail_lines=integer(query, "tailLines"),
        since_seconds=since,
        limit_bytes=integer(query, "limitBytes"),
    )


def _container(asked: str, pod_name: str, pod: Json) -> str:
    main = [container["name"] for container in pod["spec"].get("containers") or ()]
    inits = [container["name"] for container in pod["spec"].get("initContainers") or ()]
    if not asked:
        if len(main) == 1 and not inits:
            return str(main[0])
        message = f"a container name must be specified for pod {pod_name}, choose one of: [{' '.join(main)}]"
        if inits:
            message += f" or one of the init containers: [{' '.join(inits)}]"
        raise api_errors.bad_request(message)
    if asked not in main and asked not in inits:
        raise api_errors.bad_request(f"container {asked} is not valid for pod {pod_name}")
    return asked


async def connect(
    registry: Registry, runtime: PodLogs | None, request: ServedRequest, endpoint: Endpoint
) -> web.StreamResponse:
    """GET or POST of ``pods/NAME/exec``, ``attach`` or ``portforward``."""
    path = request.path
    pod = registry.get(endpoint, path.namespace, path.name).document()
    if path.subresource == "attach":
        raise api_errors.bad_request(
            "attach: the local cluster does not support it: containers have no input, and kubectl logs --follow shows "
            "their output"
        )
    if path.subresource == "portforward":
        address = (pod.get("status") or {}).get("podIP") or "its podIP"
        raise api_errors.bad_request(
            f"port-forward: the local cluster does not support it, and needs none: the Pod's address, {address}, is "
            "reachable from this machine"
        )
    container = _container(first(request.query, "container"), path.name, pod)
    return await serve_exec(runtime, request, container)


def read_scale(registry: Registry, request: ServedRequest, endpoint: Endpoint) -> web.Response:
    """GET of ``scale``."""
    record = registry.get(endpoint, request.path.namespace, request.path.name)
    return document_answer(_scale_of(endpoint, record))


def write_scale(registry: Registry, request: ServedRequest, endpoint: Endpoint) -> web.Response:
    """PUT or PATCH of ``scale``: sets the desired number of replicas."""
    path, paths = request.path, _paths(endpoint)
    record = registry.get(endpoint, path.namespace, path.name)
    if request.method == "PATCH":
        call = patch_call(request)
        scale = patcher(request, endpoint)(_scale_of(endpoint, record, strict=False))
    else:
        call = write_call("update", request.agent, request.query, "UpdateOptions")
        scale, _ = request.parsed()
    replicas = _at(scale, ".spec.replicas")
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise api_errors.bad_request("Scale: spec.replicas must be an integer")
    obj = endpoint.document(record)
    version = (scale.get("metadata") or {}).get("resourceVersion")
    obj["metadata"]["resourceVersion"] = version or obj["metadata"]["resourceVersion"]
    _set(obj, paths.spec_replicas, replicas)
    record = registry.write(endpoint, record, obj, call)
    return document_answer(_scale_of(endpoint, record))


def _scale_of(endpoint: Endpoint, record: ObjectRecord, *, strict: bool = True) -> Json:
    paths = _paths(endpoint)
    obj = endpoint.document(record)
    replicas = _at(obj, paths.spec_replicas)
    if replicas is None:
        if strict:
            raise api_errors.internal_error(f'the spec replicas field "{paths.spec_replicas}" does not exist')
        replicas = 0
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    state: Json = {"replicas": _at(obj, paths.status_replicas) or 0}
    selector = _at(obj, paths.label_selector) if paths.label_selector else None
    if selector:
        state["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in kept if key in obj["metadata"]},
        "spec": {"replicas": replicas},
        "status": state,
    }


def _paths(endpoint: Endpoint) -> ScalePaths:
    if endpoint.type.scale is None:
        raise api_errors.resource_not_found()
    return endpoint.type.scale


def _at(obj: Any, path: str) -> Any:
    for step in path.strip(".").split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _set(obj: Json, path: str, value: Any) -> None:
    *parents, last = path.strip(".").split(".")
    for step in parents:
        found = obj.get(step)
        obj[step] = obj = dict(found) if isinstance(found, dict) else {}
    obj[last] = value

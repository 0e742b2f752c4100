"""Routes HTTP requests to their handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from frameworkcontroller.api import gojson
from frameworkcontroller.local.apiserver import (
    api_errors,
    discovery_documents,
    openapi_documents,
    openapi_protobuf,
    subresources,
)
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.authentication import Authenticator
from frameworkcontroller.local.apiserver.endpoints import Endpoint
from frameworkcontroller.local.apiserver.handlers import ResourceHandlers
from frameworkcontroller.local.apiserver.http_bodies import (
    MAX_BODY_BYTES,
    ServedRequest,
    answer,
    document_answer,
    failure,
    split_target,
    text_answer,
)
from frameworkcontroller.local.apiserver.options import Query, boolean
from frameworkcontroller.local.apiserver.paths import ResourcePath, parse_resource_path
from frameworkcontroller.local.apiserver.pod_logs import PodLogs
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.reviews import Reviews

GIT_VERSION: Final = "v1.33.0+frameworkcontroller"
"""The most similar Kubernetes version."""

_HEALTH: Final = ("/healthz", "/livez", "/readyz")
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
_PROTOBUF: Final = "application/com.github.proto-openapi"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """An answered request, for observers."""

    verb: str
    """The verb in RBAC rules: ``get``, ``list``, ``watch``, ..., ``deletecollection``."""
    resource: str
    """``plural.group``; empty for other paths."""
    subresource: str
    namespace: str
    name: str
    agent: str
    code: int


class HttpApi:
    """Answers every request."""

    def __init__(
        self,
        registry: Registry,
        handlers: ResourceHandlers,
        authenticator: Authenticator,
        *,
        reviews: Reviews,
        logs: PodLogs | None = None,
        observe: Callable[[Served], None] | None = None,
    ) -> None:
        """``authenticator`` checks all requests but health checks. ``observe`` is called with each request."""
        self._registry = registry
        self._handlers = handlers
        self._authenticator = authenticator
        self._reviews = reviews
        self.logs = logs
        self._observe = observe
        self._documents: dict[tuple[object, ...], bytes] = {}
        self._documented: object = None

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; never raises."""
        path, query = split_target(http.raw_path)
        response: web.StreamResponse
        resource = parse_resource_path(path)
        try:
            self._authenticator.check(http, public=path.startswith(_HEALTH))
            response = await self._answer(http, path, resource, query)
        except ApiStatusError as error:
            response = failure(error)
        except web.HTTPRequestEntityTooLarge:
            response = failure(api_errors.too_large(MAX_BODY_BYTES))
        except web.HTTPException:
            raise
        except Exception as error:  # noqa: BLE001 -- the server must outlive a fault of its own
            if isinstance(error, ConnectionError) and _has_left(http):
                # The client has closed the connection; this answer is not sent.
                return web.Response()
            _log.exception("%s %s failed", http.method, path)
            response = failure(api_errors.internal_error(f"{type(error).__name__}: {error}"))
        if self._observe is not None:
            self._observe(_served(http, resource, query, response.status))
        return response

    async def _answer(
        self, http: web.BaseRequest, path: str, resource: ResourcePath | None, query: Query
    ) -> web.StreamResponse:
        if resource is None:
            if http.method not in {"GET", "HEAD"}:
                raise api_errors.method_not_allowed()
            return self._document(http, path)
        endpoint = self._registry.endpoints.find(resource.group, resource.version, resource.plural)
        if endpoint is None:
            if resource.group and not self._registry.endpoints.has_builtin(resource.group, resource.version):
                return text_answer("404 page not found\n", 404)
            raise api_errors.resource_not_found()
        if resource.namespace and not endpoint.type.namespaced:
            raise api_errors.resource_not_found()
        if http.headers.get("Expect", "").lower() == "100-continue":
            await http.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            http.writer.output_size = 0
        request = ServedRequest(
            http=http,
            method=http.method,
            path=resource,
            query=query,
            body=await http.read() if http.method != "GET" else b"",
            media_type=http.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
            agent=http.headers.get("User-Agent", ""),
            accept=http.headers.get("Accept", ""),
        )
        if resource.subresource:
            return await self._subresource(request, endpoint)
        if resource.name and not resource.watch:
            return self._object(request, endpoint)
        return await self._collection(request, endpoint)

    async def _collection(self, request: ServedRequest, endpoint: Endpoint) -> web.StreamResponse:
        path, handlers = request.path, self._handlers
        whole = endpoint.type.namespaced and not path.namespace
        match request.method:
            case "GET" if path.watch or boolean(request.query, "watch"):
                _require(endpoint, "watch")
                return await handlers.watch(request, endpoint)
            case "GET":
                _require(endpoint, "list")
                return handlers.list(request, endpoint)
            case "POST" if not whole:
                _require(endpoint, "create")
                if "get" not in endpoint.type.verbs:
                    return self._reviews.create(request, endpoint)
                return handlers.create(request, endpoint)
            case "DELETE" if not whole:
                _require(endpoint, "deletecollection")
                return handlers.delete_collection(request, endpoint)
        raise api_errors.method_not_allowed()

    def _object(self, request: ServedRequest, endpoint: Endpoint) -> web.StreamResponse:
        handlers = self._handlers
        if endpoint.type.namespaced and not request.path.namespace:
            raise api_errors.resource_not_found()
        verb = _VERBS.get(request.method, "")
        _require(endpoint, verb)
        match verb:
            case "get":
                return handlers.read(request, endpoint)
            case "update":
                return handlers.replace(request, endpoint)
            case "patch":
                return handlers.patch(request, endpoint)
            case "delete":
                return handlers.delete(request, endpoint)
        raise api_errors.method_not_allowed()

    async def _subresource(self, request: ServedRequest, endpoint: Endpoint) -> web.StreamResponse:
        path, registry = request.path, self._registry
        declared = endpoint.type.subresource(path.subresource)
        if declared is None:
            raise (
                api_errors.not_found(endpoint.type, path.name)
                if endpoint.type.custom
                else api_errors.resource_not_found()
            )
        verb = _VERBS.get(request.method, "")
        if verb not in declared.verbs:
            raise api_errors.method_not_allowed()
        match path.subresource:
            case "status" | "finalize":
                return self._object(request, endpoint)
            case "scale" if verb == "get":
                return subresources.read_scale(registry, request, endpoint)
            case "scale":
                return subresources.write_scale(registry, request, endpoint)
            case "binding":
                return subresources.create_binding(registry, request, endpoint)
            case "eviction":
                return subresources.create_eviction(registry, request, endpoint)
            case "token":
                return self._reviews.accounts.create(request, endpoint)
            case "log":
                return await subresources.read_log(registry, self.logs, request, endpoint)
            case "exec" | "attach" | "portforward":
                return await subresources.connect(registry, self.logs, request, endpoint)
        raise api_errors.resource_not_found()

    def _document(self, http: web.BaseRequest, path: str) -> web.StreamResponse:
        """Paths that are no resource: health, version, discovery, OpenAPI."""
        if path.startswith(_HEALTH) and path.partition("/")[0] == "":
            return text_answer("ok")
        path = path.rstrip("/") or "/"
        types = self._registry.endpoints.types
        accept = http.headers.get("Accept", "")
        address = http.headers.get("Host", "")
        if path == "/version":
            return document_answer(discovery_documents.version_info(GIT_VERSION))
        if path in {"/api", "/apis"}:
            return self._groups(path, accept, address)
        if path.startswith("/openapi/"):
            return self._openapi(path, accept)
        parts = path.strip("/").split("/")
        found: dict[str, Any] | None = None
        if parts[0] == "api" and len(parts) == 2:
            found = discovery_documents.api_resource_list(types, "", parts[1])
            if found is None:
                raise api_errors.resource_not_found()
        elif parts[0] == "apis" and len(parts) == 2:
            found = discovery_documents.api_group(types, parts[1])
        elif parts[0] == "apis" and len(parts) == 3:
            found = discovery_documents.api_resource_list(types, parts[1], parts[2])
        if found is not None:
            return document_answer(found)
        if parts[0] in {"api", "apis"}:
            return text_answer("404 page not found\n", 404)
        return document_answer(discovery_documents.root_paths(types), 200 if path == "/" else 404)

    def _groups(self, path: str, accept: str, address: str) -> web.Response:
        types = self._registry.endpoints.types
        core = path == "/api"
        for clause in accept.split(","):
            if "as=APIGroupDiscoveryList" in clause and "g=apidiscovery.k8s.io" in clause:
                version = "v2beta1" if "v=v2beta1" in clause else "v2"
                body = self._cached(
                    ("aggregated", core, version),
                    lambda: discovery_documents.aggregated(types, core=core, version=version),  # noqa: B023 -- called at once
                )
                media_type = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
                return answer(body, media_type=media_type)
            if clause.partition(";")[0].strip() in {"application/json", "*/*", ""}:
                break
        return document_answer(
            discovery_documents.api_versions(address) if core else discovery_documents.api_group_list(types, address)
        )

    def _openapi(self, path: str, accept: str) -> web.Response:
        types = self._registry.endpoints.types
        if path == "/openapi/v2" and openapi_protobuf.MEDIA_TYPE in accept:
            body = self._cached(
                ("v2", "protobuf"), lambda: openapi_protobuf.encode(openapi_documents.v2_document(types))
            )
            return answer(body, media_type=openapi_protobuf.CONTENT_TYPE)
        offered = {clause.partition(";")[0].strip() for clause in accept.split(",")}
        if accept and not offered & {"application/json", "*/*", "application/*"} and _PROTOBUF in accept:
            raise ApiStatusError(406, "NotAcceptable", "406: Not Acceptable", {})
        if path == "/openapi/v2":
            return answer(self._cached(("v2",), lambda: openapi_documents.v2_document(types)))
        if path == "/openapi/v3":
            return answer(self._cached(("v3",), lambda: openapi_documents.v3_index(types)))
        name = path.removeprefix("/openapi/v3/")
        body = self._cached(("v3", name), lambda: openapi_documents.v3_document(types, name))
        return answer(body) if body != b"null\n" else text_answer("404 page not found\n", 404)

    def _cached(self, key: tuple[object, ...], make: Callable[[], Any]) -> bytes:
        """A discovery document, cached until the served resources change."""
        types = self._registry.endpoints.types
        if self._documented is not types:
            self._documents.clear()
            self._documented = types
        if key not in self._documents:
            made = make()
            encoded = made if isinstance(made, bytes) else gojson.encode_line(made)
            self._documents[key] = encoded
        return self._documents[key]


def _has_left(http: web.BaseRequest) -> bool:
    return http.transport is None or http.transport.is_closing()


def _require(endpoint: Endpoint, verb: str) -> None:
    if verb not in endpoint.type.verbs:
        raise api_errors.method_not_allowed()


def _served(http: web.BaseRequest, path: ResourcePath | None, query: Query, code: int) -> Served:
    agent = http.headers.get("User-Agent", "")
    verb = _VERBS.get(http.method, http.method.lower())
    if path is None:
        return Served(verb, "", "", "", http.raw_path.partition("?")[0], agent, code)
    if not path.name:
        watch = path.watch or boolean(query, "watch")
        verb = {"get": "watch" if watch else "list", "delete": "deletecollection"}.get(verb, verb)
    resource = f"{path.plural}.{path.group}" if path.group else path.plural
    return Served(verb, resource, path.subresource, path.namespace, path.name, agent, code)

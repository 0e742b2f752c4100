"""The HTTP verbs of a resource."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import orjson
from aiohttp import web

from frameworkcontroller.local.apiserver import api_errors, builtin, patches, status_causes
from frameworkcontroller.local.apiserver import apply as server_side_apply
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.endpoints import Endpoint
from frameworkcontroller.local.apiserver.http_bodies import (
    InvalidJsonError,
    ServedRequest,
    answer,
    document_answer,
    parse_json,
    parse_yaml,
)
from frameworkcontroller.local.apiserver.metadata import rfc3339
from frameworkcontroller.local.apiserver.object_records import Json, ObjectRecord
from frameworkcontroller.local.apiserver.options import (
    Call,
    ContinueToken,
    ListOptions,
    delete_options,
    first,
    list_options,
    resource_version,
    write_call,
)
from frameworkcontroller.local.apiserver.patches import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from frameworkcontroller.local.apiserver.registry import Registry, check_names
from frameworkcontroller.local.apiserver.representations import (
    JSON,
    Form,
    Representation,
    negotiate,
    render_list,
    render_object,
)
from frameworkcontroller.local.apiserver.selectors import Predicate, predicate
from frameworkcontroller.local.apiserver.storage import ListPage
from frameworkcontroller.local.apiserver.strategic import strategic_merge_patch
from frameworkcontroller.local.apiserver.watch_cache import CompactedError
from frameworkcontroller.local.apiserver.watching import WatchStream

_WATCH_SECONDS: Final = 1800.0
"""A watch without a timeout ends after a random time between this and twice this, to spread the ends."""


class ResourceHandlers:
    """Create, read, list, watch, replace, patch and delete."""

    def __init__(self, registry: Registry, rng: random.Random, bookmark_interval: float) -> None:
        """``bookmark_interval``: seconds between the bookmarks of a watch."""
        self.registry = registry
        self._rng = rng
        self._bookmark_interval = bookmark_interval
        self._watches: dict[WatchStream, None] = {}

    def end_watches(self) -> None:
        """End all active watches."""
        for watch in self._watches:
            watch.closing = True
            watch.bell.ring()

    @property
    def watches(self) -> int:
        """The number of active watches."""
        return len(self._watches)

    def create(self, request: ServedRequest, endpoint: Endpoint) -> web.Response:
        """POST to a collection."""
        call = write_call("create", request.agent, request.query, "CreateOptions")
        parsed, raw = _parsed(request, endpoint)
        record = self.registry.create(endpoint, request.path.namespace, parsed, call, raw=raw)
        return self.object_answer(request, endpoint, record, code=201, call=call)

    def read(self, request: ServedRequest, endpoint: Endpoint) -> web.Response:
        """GET of one object, also through ``status``."""
        version = resource_version(first(request.query, "resourceVersion"))
        self._refuse_future(version)
        record = self.registry.get(endpoint, request.path.namespace, request.path.name)
        return self.object_answer(request, endpoint, record)

    def list(self, request: ServedRequest, endpoint: Endpoint) -> web.Response:
        """GET of a collection."""
        options = list_options(request.query)
        view = _view(request)
        page = self._page(request, endpoint, options)
        prefix = _prefix(request)
        metadata: Json = {"resourceVersion": str(page.revision)}
        if page.last:
            metadata["continue"] = ContinueToken(page.revision, page.last.removeprefix(prefix)).encode()
            if not options.label_selector and not options.field_selector:
                metadata["remainingItemCount"] = page.remaining
        elif endpoint.type.custom and view.form is Form.FULL:
            metadata = {"continue": "", **metadata}
        body = render_list(view, endpoint, page.records, metadata, self.registry.wall())
        return answer(body, media_type=view.media_type)

    def _page(self, request: ServedRequest, endpoint: Endpoint, options: ListOptions) -> ListPage:
        storage, prefix = self.registry.storage, _prefix(request)
        matches = _predicate(options, endpoint)
        self._refuse_future(options.version)
        after, revision = "", None
        if options.resume is not None:
            after = prefix + options.resume.after
            revision = options.resume.revision if options.resume.revision > 0 else None
        elif options.version and (options.match == "Exact" or (options.limit and not options.match)):
            # The first page of a list at a version has that version; without a page size, any later one is allowed.
            revision = options.version
        # The real server answers lists at "any" version from its cache, which ignores page sizes.
        limit = 0 if options.version == 0 and options.resume is None else options.limit
        try:
            return storage.page(endpoint.resource, prefix, after=after, limit=limit, revision=revision, matches=matches)
        except CompactedError:
            if options.resume is None:
                raise api_errors.expired("The resourceVersion for the provided list is too old.") from None
            raise api_errors.continue_expired(ContinueToken(-1, options.resume.after).encode()) from None

    def _refuse_future(self, version: int | None) -> None:
        current = self.registry.storage.revision
        if version is not None and version > current:
            raise api_errors.too_large_resource_version(version, current)

    async def watch(self, request: ServedRequest, endpoint: Endpoint) -> web.StreamResponse:
        """GET of a collection with ``watch``."""
        options = list_options({**request.query, "watch": ["1"]})
        view = _view(request)
        matches = _predicate(options, endpoint)
        watch = WatchStream(
            self.registry.storage,
            self.registry.endpoints,
            endpoint,
            _prefix(request),
            matches,
            options,
            view,
            wall=self.registry.wall,
            timeout=options.timeout or _WATCH_SECONDS * (1 + self._rng.random()),
            bookmark_interval=self._bookmark_interval,
        )
        response = web.StreamResponse(headers={"Cache-Control": "no-cache, private", "Content-Type": view.media_type})
        self._watches[watch] = None
        try:
            await response.prepare(request.http)
            await watch.stream(response)
            await response.write_eof()
        finally:
            del self._watches[watch]
        return response

    def replace(self, request: ServedRequest, endpoint: Endpoint) -> web.Response:
        """PUT of one object, or of its status."""
        call = write_call("update", request.agent, request.query, "UpdateOptions")
        parsed, raw = _parsed(request, endpoint)
        path = request.path
        record, created = self.registry.replace(
            endpoint, path.namespace, path.name, parsed, call, raw=raw, subresource=path.subresource
        )
        return self.object_answer(request, endpoint, record, code=201 if created else 200, call=call)

    def patch(self, request: ServedRequest, endpoint: Endpoint) -> web.Response:
        """PATCH of one object, or of its status."""
        call = patch_call(request)
        if request.media_type == APPLY_PATCH:
            record, created = self._apply(request, endpoint, call)
            return self.object_answer(request, endpoint, record, code=201 if created else 200, call=call)
        change = patcher(request, endpoint)
        path = request.path
        record = self.registry.get(endpoint, path.namespace, path.name)
        patched = change(endpoint.document(record))
        decoded = endpoint.decode_patched(patched, call.validation)
        call.warnings.extend(decoded.warnings)
        check_names(endpoint.type, path.namespace, path.name, decoded.obj)
        record = self.registry.write(endpoint, record, decoded.obj, call, subresource=path.subresource)
        return self.object_answer(request, endpoint, record, call=call)

    def _apply(self, request: ServedRequest, endpoint: Endpoint, call: Call) -> tuple[ObjectRecord, bool]:
        path, registry = request.path, self.registry
        parsed = parse_yaml(request.body)
        version = (parsed.get("apiVersion") if isinstance(parsed, dict) else "") or ""
        if version != endpoint.type.group_version:
            raise api_errors.bad_request(
                f"Incorrect version specified in apply patch. Specified patch version: {version}, "
                f"expected: {endpoint.type.group_version}"
            )
        server_side_apply.check(endpoint.type, parsed, of=endpoint.shape)
        applied = endpoint.decode(parsed, call.validation).obj
        check_names(endpoint.type, path.namespace, path.name, applied)
        record = registry.storage.get(endpoint.resource, endpoint.key(path.namespace, path.name))
        if record is None and path.subresource:
            raise api_errors.not_found(endpoint.type, path.name)
        merged = server_side_apply.apply(
            endpoint.document(record) if record is not None else None,
            applied,
            of=endpoint.shape,
            manager=call.manager,
            now=rfc3339(registry.wall()),
            force=call.force,
            subresource=path.subresource,
            status_apart=endpoint.type.subresource("status") is not None,
        )
        if record is None:
            uid = applied["metadata"].get("uid")
            if uid:
                why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise api_errors.conflict(endpoint.type, path.name, why)
            return registry.create_decoded(endpoint, path.namespace, merged, call, applied=True), True
        written = registry.write(endpoint, record, merged, call, subresource=path.subresource, applied=True)
        return written, False

    def delete(self, request: ServedRequest, endpoint: Endpoint) -> web.Response:
        """DELETE of one object."""
        options, dry_run = delete_options(request.query, _delete_body(request))
        call = Call("delete", request.agent, dry_run=dry_run)
        done = self.registry.delete(endpoint, request.path.namespace, request.path.name, options, call)
        if done.gone and not endpoint.strategy.returns_deleted:
            return document_answer(api_errors.success(endpoint.type, done.record.name, done.record.uid))
        accepted = not done.gone and options.orphan_dependents is False
        return self.object_answer(request, endpoint, done.record, code=202 if accepted else 200)

    def delete_collection(self, request: ServedRequest, endpoint: Endpoint) -> web.Response:
        """DELETE of a collection: of all matching objects, one by one."""
        options, dry_run = delete_options(request.query, _delete_body(request))
        call = Call("deletecollection", request.agent, dry_run=dry_run)
        page = self._page(request, endpoint, list_options(request.query))
        for record in page.records:
            current = self.registry.storage.get(record.resource, record.key)
            if current is not None and record.name not in endpoint.strategy.reserved_names:
                self.registry.delete_record(endpoint, current, options, call)
        view = _view(request)
        metadata: Json = {"resourceVersion": str(page.revision)}
        if endpoint.type.custom:
            metadata = {"continue": "", **metadata}
        body = render_list(view, endpoint, page.records, metadata, self.registry.wall())
        return answer(body, media_type=view.media_type)

    def object_answer(
        self,
        request: ServedRequest,
        endpoint: Endpoint,
        record: ObjectRecord,
        *,
        code: int = 200,
        call: Call | None = None,
    ) -> web.Response:
        """Build a response with one object."""
        view = _view(request)
        body = render_object(view, endpoint, record, self.registry.wall())
        return answer(body, code=code, media_type=view.media_type, warnings=call.warnings if call is not None else ())


def _delete_body(request: ServedRequest) -> bytes:
    if not request.body or request.media_type in {"", JSON}:
        return request.body
    parsed, _ = request.parsed()
    return orjson.dumps(parsed)


def _prefix(request: ServedRequest) -> str:
    return f"{request.path.namespace}/" if request.path.namespace else ""


def _predicate(options: ListOptions, endpoint: Endpoint) -> Predicate | None:
    return predicate(
        options.label_selector, options.field_selector, endpoint.field_labels, standard=endpoint.standard_labels_only
    )


def _view(request: ServedRequest) -> Representation:
    return negotiate(request.accept, first(request.query, "includeObject"))


def _parsed(request: ServedRequest, endpoint: Endpoint) -> tuple[Any, bytes | None]:
    try:
        return request.parsed()
    except InvalidJsonError as error:
        raise builtin.unparsable(endpoint.type, error.raw, error.error) from None


def patch_call(request: ServedRequest) -> Call:
    """The options of a PATCH."""
    call = write_call("patch", request.agent, request.query, "PatchOptions")
    if request.media_type == APPLY_PATCH:
        if not call.explicit_manager:
            cause = status_causes.required("fieldManager", "is required for apply patch")
            raise api_errors.invalid_options("PatchOptions", [cause])
        call.verb = "apply"
    elif "force" in request.query:
        raise api_errors.invalid_options(
            "PatchOptions", [status_causes.forbidden("force", "may not be specified for non-apply patch")]
        )
    return call


def patcher(request: ServedRequest, endpoint: Endpoint) -> Callable[[Json], Any]:
    """The function by which a PATCH's body changes a document."""
    kind = request.media_type
    if kind == STRATEGIC_PATCH and endpoint.type.custom:
        raise api_errors.unsupported_media_type((JSON_PATCH, MERGE_PATCH, APPLY_PATCH))
    if kind not in {JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH}:
        raise api_errors.unsupported_patch_type()
    try:
        given = parse_json(request.body)
    except InvalidJsonError:
        if kind == MERGE_PATCH:
            raise ApiStatusError(500, "", "Invalid JSON Patch") from None
        raise
    if kind == JSON_PATCH:
        return lambda document: patches.json_patch(document, given)
    if kind == MERGE_PATCH:
        return lambda document: patches.merge_patch(document, given)
    return lambda document: strategic_merge_patch(document, given, endpoint.shape)

"""The paths in an OpenAPI document: the operations on a resource and their parameters.

kubectl reads from them whether the server validates fields (the parameter ``fieldValidation``), and the kind of a path.
"""

from __future__ import annotations

from typing import Any

from frameworkcontroller.local.apiserver.api_resources import ApiResource, Subresource
from frameworkcontroller.local.apiserver.openapi_schemas import META

Json = dict[str, Any]

_JSON = "application/json"
_PATCHES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"
_ACTIONS = {"get": "get", "put": "put", "patch": "patch", "delete": "delete"}
_ITEM_VERBS = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
_VERB_TEXTS = {
    "get": "read the specified {}",
    "put": "replace the specified {}",
    "patch": "partially update the specified {}",
    "delete": "delete a {}",
    "post": "create a {}",
}


def _parameter(name: str, kind: str, description: str, *, where: str = "query") -> Json:
    parameter: Json = {"name": name, "in": where, "description": description, "schema": {"type": kind}}
    return {**parameter, "required": True} if where == "path" else parameter


_DRY_RUN = _parameter("dryRun", "string", "All: go through all steps but do not keep the result.")
_MANAGER = _parameter("fieldManager", "string", "Who makes the change, for the ledger of who manages which field.")
_VALIDATION = _parameter(
    "fieldValidation",
    "string",
    "Handling of unknown and duplicate fields: Ignore, Warn (the default) or Strict.",
)
_FORCE = _parameter("force", "boolean", "Server-side apply takes fields from other managers.")
_WRITE = [_DRY_RUN, _MANAGER, _VALIDATION]
_PARAMETERS = {
    "get": [],
    "put": _WRITE,
    "patch": [*_WRITE, _FORCE],
    "post": _WRITE,
    "delete": [
        _DRY_RUN,
        _parameter("gracePeriodSeconds", "integer", "How long the object may take to end, in seconds."),
        _parameter("propagationPolicy", "string", "Deletion of its dependents: Background, Foreground or Orphan."),
    ],
}
_LIST = [
    _parameter("allowWatchBookmarks", "boolean", "Ask for events that only tell how far a watch has come."),
    _parameter("continue", "string", "The token of a page, to get the one after it."),
    _parameter("fieldSelector", "string", "Only objects whose fields are so."),
    _parameter("labelSelector", "string", "Only objects whose labels are so."),
    _parameter("limit", "integer", "The largest number of objects in a page."),
    _parameter("resourceVersion", "string", "Not older than this; a watch begins after it."),
    _parameter("resourceVersionMatch", "string", "How resourceVersion is meant: NotOlderThan or Exact."),
    _parameter("sendInitialEvents", "boolean", "Begin a watch with the existing objects."),
    _parameter("timeoutSeconds", "integer", "How long the call may last."),
    _parameter("watch", "boolean", "Watch for changes instead of listing."),
]
_NAME = _parameter("name", "string", "Name of the object.", where="path")
_NAMESPACE = _parameter("namespace", "string", "Namespace of the object.", where="path")


def of(t: ApiResource, schema: str, list_schema: str) -> Json:
    """The paths of a resource, with the named schemas of its kind and list."""
    root = f"/apis/{t.group_version}" if t.group else f"/api/{t.version}"
    base = f"{root}/namespaces/{{namespace}}/{t.plural}" if t.namespaced else f"{root}/{t.plural}"
    scope = [_NAMESPACE] if t.namespaced else []
    paths: Json = {}
    collection: Json = {"parameters": scope}
    if "list" in t.verbs:
        collection["get"] = _operation(t, "get", list_schema, action="list", parameters=_LIST)
        if t.namespaced:
            paths[f"{root}/{t.plural}"] = {"get": collection["get"], "parameters": []}
    if "create" in t.verbs:
        collection["post"] = _operation(t, "post", schema, action="post")
    if "deletecollection" in t.verbs:
        collection["delete"] = _operation(t, "delete", f"{META}.Status", action="deletecollection")
    paths[base] = collection
    item = {method: _operation(t, method, schema) for method, verb in _ITEM_VERBS.items() if verb in t.verbs}
    if item:
        paths[f"{base}/{{name}}"] = {**item, "parameters": [_NAME, *scope]}
    for sub in t.subresources:
        methods = [method for method, verb in _ITEM_VERBS.items() if verb in sub.verbs]
        methods += ["post"] if "create" in sub.verbs else []
        paths[f"{base}/{{name}}/{sub.name}"] = {
            **{method: _operation(t, method, schema, sub=sub) for method in methods},
            "parameters": [_NAME, *scope],
        }
    return paths


def _operation(
    t: ApiResource,
    method: str,
    schema: str,
    *,
    action: str = "",
    parameters: list[Json] | None = None,
    sub: Subresource | None = None,
) -> Json:
    kind = t.kind if sub is None else sub.kind
    group = t.group if sub is None or sub.group is None else sub.group
    version = t.version if sub is None or sub.version is None else sub.version
    noun = kind if sub is None else f"{sub.name} of a {t.kind}"
    # Other kinds than the parent's have no schema here.
    answer = {"$ref": f"#/components/schemas/{schema}"} if kind == t.kind else {"type": "object"}
    text = f"list {t.kind} objects" if action == "list" else _VERB_TEXTS[method].format(noun)
    operation: Json = {
        "description": text,
        "operationId": f"{action or _ACTIONS.get(method, method)}_{t.plural}" + (f"_{sub.name}" if sub else ""),
        "parameters": _PARAMETERS[method] if parameters is None else parameters,
        "responses": {
            ("201" if method == "post" else "200"): {"description": "OK", "content": {_JSON: {"schema": answer}}},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": action or _ACTIONS.get(method, method),
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    }
    if method in ("post", "put"):
        operation["requestBody"] = {"content": {_JSON: {"schema": answer}}, "required": True}
    elif method == "patch":
        patch = {"schema": {"$ref": f"#/components/schemas/{META}.Patch"}}
        formats = _PATCHES if t.custom else (*_PATCHES, _STRATEGIC)
        operation["requestBody"] = {"content": dict.fromkeys(formats, patch), "required": True}
    return operation

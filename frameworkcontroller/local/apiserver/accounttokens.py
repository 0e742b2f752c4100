"""Tokens of ServiceAccounts: made by a TokenRequest, checked by a TokenReview. The API server itself admits none.

They are JSON Web Tokens as a real server's, signed with a key of this process.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from aiohttp import web

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.local.apiserver import api_errors, builtin_resources
from frameworkcontroller.local.apiserver.endpoints import Endpoint
from frameworkcontroller.local.apiserver.http_bodies import ServedRequest, document_answer
from frameworkcontroller.local.apiserver.object_records import Json, ObjectRecord
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.status_causes import invalid

API_AUDIENCE: Final = "https://kubernetes.default.svc"
"""The audience of tokens for the API server."""

_HEADER: Final = {"alg": "HS256", "kid": "local"}
_MIN_SEC: Final = 600
_USUAL_SEC: Final = 3600
_MAX_SEC: Final = 1 << 32


class AccountTokens:
    """Makes and checks the tokens of one server."""

    def __init__(self, registry: Registry, wall: Callable[[], float]) -> None:
        self._registry = registry
        self._wall = wall
        self._key = secrets.token_bytes(32)

    def create(self, request: ServedRequest, endpoint: Endpoint) -> web.Response:
        """POST to ``serviceaccounts/NAME/token``."""
        path = request.path
        account = self._registry.get(endpoint, path.namespace, path.name)
        asked, _ = request.parsed()
        if not isinstance(asked, dict) or asked.get("kind", "TokenRequest") != "TokenRequest":
            raise api_errors.bad_request("the object provided is unrecognized (must be of type TokenRequest)")
        spec = {"audiences": [API_AUDIENCE], "expirationSeconds": _USUAL_SEC, **_given(asked.get("spec"))}
        causes = []
        if spec["expirationSeconds"] < _MIN_SEC:
            text = "may not specify a duration less than 10 minutes"
            causes.append(invalid("spec.expirationSeconds", spec["expirationSeconds"], text))
        elif spec["expirationSeconds"] > _MAX_SEC:
            text = "may not specify a duration larger than 2^32 seconds"
            causes.append(invalid("spec.expirationSeconds", spec["expirationSeconds"], text))
        if causes:
            raise api_errors.invalid_kind("TokenRequest", "authentication.k8s.io", "", causes)
        now = int(self._wall())
        expires = now + spec["expirationSeconds"]
        claims = {
            "aud": spec["audiences"],
            "exp": expires,
            "iat": now,
            "iss": API_AUDIENCE,
            "nbf": now,
            "jti": secrets.token_hex(8),
            "sub": f"system:serviceaccount:{path.namespace}:{path.name}",
            "kubernetes.io": {
                "namespace": path.namespace,
                "serviceaccount": {"name": path.name, "uid": account.uid},
                **self._bound(path.namespace, path.name, spec.get("boundObjectRef")),
            },
        }
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": path.name, "namespace": path.namespace},
            "spec": spec,
            "status": {"token": self._encode(claims), "expirationTimestamp": format_time(expires)},
        }
        return document_answer(body, code=201)

    def _bound(self, namespace: str, account: str, reference: Json | None) -> Json:
        if not reference:
            return {}
        if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod"):
            group, _, version = str(reference.get("apiVersion") or "").rpartition("/")
            kind = f"{group}/{version}, Kind={reference.get('kind') or ''}"
            raise api_errors.bad_request(f"cannot bind token to object of type {kind}")
        name, uid = reference.get("name") or "", reference.get("uid") or ""
        record = self._pod(namespace, name)
        if record is None:
            raise api_errors.not_found(builtin_resources.PODS, name)
        if uid and uid != record.uid:
            raise api_errors.conflict(
                builtin_resources.PODS,
                name,
                f"the UID in the bound object reference ({uid}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
            )
        of_pod = record.document()["spec"].get("serviceAccountName") or "default"
        if of_pod != account:
            raise api_errors.bad_request(
                f"cannot bind token for serviceaccount {account!r} to pod running with different serviceaccount name."
            )
        return {"pod": {"name": name, "uid": record.uid}}

    def holder(self, token: str) -> tuple[Json, frozenset[str]] | None:
        """The user and the audiences of a token; None unless it is valid now."""
        claims = self._decode(token)
        if claims is None or claims["exp"] <= self._wall():
            return None
        bound = claims["kubernetes.io"]
        namespace, account, pod = bound["namespace"], bound["serviceaccount"], bound.get("pod")
        known = self._registry.storage.get(builtin_resources.SERVICEACCOUNTS.resource, f"{namespace}/{account['name']}")
        if known is None or known.uid != account["uid"]:
            return None
        user: dict[str, Any] = {
            "username": claims["sub"],
            "uid": account["uid"],
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
        }
        if pod is not None:
            record = self._pod(namespace, pod["name"])
            if record is None or record.uid != pod["uid"]:
                return None
            user["extra"] = {
                "authentication.kubernetes.io/pod-name": [pod["name"]],
                "authentication.kubernetes.io/pod-uid": [pod["uid"]],
            }
        return user, frozenset(claims["aud"])

    def _pod(self, namespace: str, name: str) -> ObjectRecord | None:
        return self._registry.storage.get(builtin_resources.PODS.resource, f"{namespace}/{name}")

    def _encode(self, claims: Json) -> str:
        signed = f"{_base64(orjson.dumps(_HEADER))}.{_base64(orjson.dumps(claims))}"
        return f"{signed}.{self._signature(signed)}"

    def _decode(self, token: str) -> Json | None:
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(signed).encode()):
            return None
        try:
            claims: Json = orjson.loads(base64.urlsafe_b64decode(signed.partition(".")[2] + "=="))
        except (ValueError, binascii.Error):
            return None
        return claims

    def _signature(self, signed: str) -> str:
        return _base64(hmac.digest(self._key, signed.encode(), hashlib.sha256))


def _given(spec: Any) -> dict[str, Any]:
    """The given fields of the spec."""
    if not isinstance(spec, Mapping):
        return {}
    audiences, seconds = spec.get("audiences"), spec.get("expirationSeconds")
    if audiences and not (isinstance(audiences, list) and all(isinstance(one, str) for one in audiences)):
        raise api_errors.bad_request("spec.audiences must be a list of text")
    if seconds is not None and type(seconds) is not int:
        raise api_errors.bad_request("spec.expirationSeconds must be a whole number")
    return {key: value for key, value in spec.items() if value not in (None, [])}


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")

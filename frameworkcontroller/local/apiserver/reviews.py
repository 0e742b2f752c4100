"""Reviews: the user of a token, and the permissions of users. RBAC objects are stored, but not evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from frameworkcontroller.api import gojson
from frameworkcontroller.local.apiserver import api_errors
from frameworkcontroller.local.apiserver.accounttokens import API_AUDIENCE, AccountTokens
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.endpoints import Endpoint
from frameworkcontroller.local.apiserver.http_bodies import ServedRequest, answer
from frameworkcontroller.local.apiserver.object_records import Json
from frameworkcontroller.local.apiserver.status_causes import invalid

_CLUSTERS_USER: Final = {"username": "local", "groups": ["system:masters", "system:authenticated"]}


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Whose a token is, and for which servers."""

    username: str
    groups: tuple[str, ...] = ("system:authenticated",)
    audiences: frozenset[str] = frozenset({API_AUDIENCE})


def _everything(spec: Mapping[str, Any]) -> bool:
    del spec
    return True


@dataclass(slots=True)
class Reviews:
    """The answers to reviews. The cluster's own token belongs to the user ``local``, who may do everything."""

    token: str
    """The cluster's own token."""
    holders: Mapping[str, TokenHolder]
    """The holders of other tokens. These tokens are for reviews only: the API server itself admits none of them."""
    accounts: AccountTokens
    """The tokens of ServiceAccounts."""
    allows: Callable[[Mapping[str, Any]], bool] = _everything
    """Decides a SubjectAccessReview by its spec."""

    def create(self, request: ServedRequest, endpoint: Endpoint) -> web.Response:
        """Answer the POST of a review."""
        parsed, raw = request.parsed()
        obj = endpoint.decode(parsed, "Ignore", raw).obj
        obj.setdefault("metadata", {"creationTimestamp": None})
        spec = obj.get("spec") or {}
        match endpoint.type.kind:
            case "SelfSubjectReview":
                obj["status"] = {"userInfo": _CLUSTERS_USER}
            case "SelfSubjectRulesReview":
                everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
                everywhere = {"nonResourceURLs": ["*"], "verbs": ["*"]}
                rules = {"resourceRules": [everything], "nonResourceRules": [everywhere], "incomplete": False}
                obj["status"] = rules
            case "SelfSubjectAccessReview":
                obj["status"] = {"allowed": True, "reason": "the embedded cluster allows everything"}
            case "SubjectAccessReview":
                obj["status"] = self._access(endpoint.type, spec)
            case _:
                obj["status"] = self._token(spec)
        return answer(gojson.encode_line(obj), code=201)

    def _access(self, t: ApiResource, spec: Json) -> Json:
        if not (spec.get("user") or spec.get("groups")):
            cause = invalid("spec.user", "", "at least one of user or group must be specified")
            raise api_errors.invalid(t, "", [cause])
        if self.allows(spec):
            return {"allowed": True, "reason": "the embedded cluster allows everything"}
        return {"allowed": False}

    def _token(self, spec: Json) -> Json:
        token = spec.get("token")
        if not token:
            raise api_errors.bad_request("token is required for TokenReview in authentication")
        asked = set(spec.get("audiences") or (API_AUDIENCE,))
        user: Json
        if token == self.token:
            user, audiences = _CLUSTERS_USER, asked & {API_AUDIENCE}
        elif (account := self.accounts.holder(token)) is not None:
            user, audiences = account[0], asked & account[1]
        else:
            holder = self.holders.get(token, TokenHolder("", audiences=frozenset()))
            user = {"username": holder.username, "groups": list(holder.groups)}
            audiences = asked & holder.audiences
        if not audiences:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user, "audiences": sorted(audiences)}

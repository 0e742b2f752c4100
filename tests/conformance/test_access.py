"""Access by tokens, on every API server alike: the identity of a viewer, and its readable namespaces."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from aiohttp.test_utils import make_mocked_request

from frameworkcontroller.api.names import GROUP
from frameworkcontroller.kube.accessreview import PathPermission, User, review_access, review_token
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError, Invalid, NotFound
from frameworkcontroller.kube.resources import NAMESPACES, SERVICEACCOUNTS, Resource
from frameworkcontroller.local.apiserver.accounttokens import API_AUDIENCE
from frameworkcontroller.local.apiserver.reviews import TokenHolder
from frameworkcontroller.webaccess import cluster_access
from frameworkcontroller.webaccess.cluster_access import ClusterAccess
from frameworkcontroller.webaccess.viewers import AccessUnavailable, AuthenticationRequired, Viewer
from tests.support.clusters import Cluster, ControlPlanes
from tests.support.eventually import eventually, read_until

RBAC: Final = "rbac.authorization.k8s.io"
ROLES: Final = Resource(RBAC, "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource(RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES: Final = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
READ: Final = {"apiGroups": [GROUP], "resources": ["frameworks"], "verbs": ["get"]}
WRITE: Final = {"apiGroups": [GROUP], "resources": ["frameworks/status"], "verbs": ["patch"]}
LOGS: Final = {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}
METRICS: Final = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
AUDIENCE: Final = "https://history.example"


class Accounts:
    """ServiceAccounts of a cluster with their permissions: in memory on the embedded one, RBAC objects on real ones."""

    def __init__(self, cluster: Cluster, client: KubeClient) -> None:
        self.cluster = cluster
        self.client = client
        self._holders: dict[str, TokenHolder] = {}
        self._granted: dict[str, tuple[str, str, Mapping[str, Any]]] = {}
        self._made: list[tuple[Resource, str]] = []
        if cluster.server is not None:
            cluster.server.reviews.holders = self._holders
            cluster.server.reviews.allows = self._allows

    def _allows(self, spec: Mapping[str, Any]) -> bool:
        attributes = spec.get("resourceAttributes") or {}
        subresource = attributes.get("subresource")
        asked = {
            "resources": attributes.get("resource", "") + (f"/{subresource}" if subresource else ""),
            "apiGroups": attributes.get("group"),
            "nonResourceURLs": (spec.get("nonResourceAttributes") or {}).get("path"),
            "verbs": (attributes or spec["nonResourceAttributes"])["verb"],
        }
        return any(
            user == spec["user"]
            and namespace in ("", attributes.get("namespace"))
            and all(asked[key] in allowed for key, allowed in rule.items())
            for user, namespace, rule in self._granted.values()
        )

    def user(self, name: str) -> str:
        return f"system:serviceaccount:{self.cluster.namespace}:{name}"

    async def token(self, name: str, *audiences: str) -> str:
        """A token of an account, which is created if it does not exist."""
        if self.cluster.embedded:
            made = f"token-{name}-{'-'.join(audiences).replace(':', '')}"
            self._holders[made] = TokenHolder(self.user(name), audiences=frozenset(audiences or (API_AUDIENCE,)))
            return made
        namespace = self.cluster.namespace
        with suppress(ApiError):
            await self.client.create(SERVICEACCOUNTS, orjson.dumps({"metadata": {"name": name}}), namespace)
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": list(audiences)} if audiences else {},
        }
        answer = await self.client.create(
            SERVICEACCOUNTS, orjson.dumps(asked), namespace, name=name, subresource="token"
        )
        return str(orjson.loads(answer)["status"]["token"])

    async def remove(self, name: str) -> None:
        """Delete an account."""
        if self.cluster.embedded:
            self._holders.clear()
        else:
            await self.client.delete(SERVICEACCOUNTS, name, self.cluster.namespace)

    async def grant(self, label: str, name: str, rule: Mapping[str, Any], namespace: str = "") -> None:
        """Let an account do this in ``namespace``, by default in all."""
        self._granted[label] = (self.user(name), namespace, rule)
        if self.cluster.embedded:
            return
        unique = label if namespace else f"{self.cluster.namespace}-{label}"
        role, binding = (ROLES, ROLE_BINDINGS) if namespace else (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
        body = {"metadata": {"name": unique}, "rules": [rule]}
        await self.client.create(role, orjson.dumps(body), namespace or None)
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.cluster.namespace}
        bound = {
            "metadata": {"name": unique},
            "roleRef": {"apiGroup": RBAC, "kind": role.kind, "name": unique},
            "subjects": [subject],
        }
        await self.client.create(binding, orjson.dumps(bound), namespace or None)
        self._made += [(role, unique), (binding, unique)] if not namespace else []

    async def revoke(self, label: str, namespace: str) -> None:
        """Revoke a grant in a namespace."""
        del self._granted[label]
        if not self.cluster.embedded:
            await self.client.delete(ROLE_BINDINGS, label, namespace)

    async def close(self) -> None:
        for resource, name in self._made:
            await self.client.delete(resource, name)


@pytest.fixture
async def accounts(cluster: Cluster) -> AsyncIterator[Accounts]:
    cluster.skip_without_tokens()
    made = Accounts(cluster, await cluster.client())
    yield made
    await made.close()


@pytest.fixture
async def other(cluster: Cluster) -> AsyncIterator[str]:
    """A second namespace."""
    client, name = await cluster.client(), f"{cluster.namespace}-b"
    await client.create(NAMESPACES, orjson.dumps({"metadata": {"name": name}}))
    yield name
    await client.delete(NAMESPACES, name)


async def viewer(access: ClusterAccess, token: str) -> Viewer:
    return await access.identify(make_mocked_request("GET", "/"), token)


async def test_the_user_of_a_token_is_known(cluster: Cluster, accounts: Accounts) -> None:
    client = accounts.client
    user = await review_token(client, await accounts.token("reader"))
    assert user is not None
    assert user.name == accounts.user("reader")
    assert "system:authenticated" in user.groups
    assert await review_token(client, "not-a-token") is None
    with pytest.raises(ApiError, match="token is required"):
        await review_token(client, "")
    with pytest.raises(Invalid, match="at least one of user or group must be specified"):
        await review_access(client, User(""), PathPermission("get", "/"))


async def test_one_namespace_is_readable_and_no_other(cluster: Cluster, accounts: Accounts, other: str) -> None:
    own = cluster.namespace
    token = await accounts.token("reader")
    await accounts.grant("one", "reader", READ, own)

    async def sees_one() -> None:
        # A new viewer each time: RBAC objects count a moment after they were made.
        seen = await viewer(ClusterAccess(accounts.client), token)
        assert await seen.readable([own, other, "no-such-namespace"]) == frozenset({own})

    await eventually(sees_one)
    seen = await viewer(ClusterAccess(accounts.client), token)
    assert seen.name == accounts.user("reader")
    assert await seen.may_read(own)
    for refused in (other, "kube-system", "", "*", "..", f"{own}/x", "A", "a" * 64):
        assert not await seen.may_read(refused)
    assert not await seen.may_write_history([own])
    assert not await seen.may_get("/metrics")
    assert await (await viewer(ClusterAccess(accounts.client), await accounts.token("stranger"))).readable([own]) == (
        frozenset()
    )


async def test_logs_need_a_permission_of_their_own(cluster: Cluster, accounts: Accounts, other: str) -> None:
    own = cluster.namespace
    reader, both, everywhere = [await accounts.token(name) for name in ("reader", "both", "everywhere")]
    for name in ("reader", "both"):
        await accounts.grant(f"read-{name}", name, READ, own)
    await accounts.grant("logs", "both", LOGS, own)
    await accounts.grant("logs-all", "everywhere", LOGS)

    async def sees_logs() -> None:
        seen = await viewer(ClusterAccess(accounts.client), both)
        assert await seen.may_read_logs(own)
        assert not await seen.may_read_logs(other)
        assert await (await viewer(ClusterAccess(accounts.client), everywhere)).may_read_logs(other)

    await eventually(sees_logs)
    seen = await viewer(ClusterAccess(accounts.client), reader)
    assert await seen.may_read(own)
    assert not await seen.may_read_logs(own)
    for refused in ("", "*", "..", f"{own}/x"):
        assert not await seen.may_read_logs(refused)


async def test_all_namespaces_are_readable(cluster: Cluster, accounts: Accounts, other: str) -> None:
    token = await accounts.token("operator")
    await accounts.grant("all", "operator", READ)
    await accounts.grant("metrics", "operator", METRICS)

    async def sees_all() -> None:
        seen = await viewer(ClusterAccess(accounts.client), token)
        assert await seen.readable([]) is None
        assert await seen.may_read(other)
        assert await seen.may_get("/metrics")
        assert not await seen.may_get("/logs")

    await eventually(sees_all)


async def test_the_controllers_permission_lets_write(cluster: Cluster, accounts: Accounts, other: str) -> None:
    own = cluster.namespace
    one, everywhere = await accounts.token("one"), await accounts.token("everywhere")
    await accounts.grant("write", "one", WRITE, own)
    await accounts.grant("write-all", "everywhere", WRITE)

    async def writes() -> None:
        seen = await viewer(ClusterAccess(accounts.client), one)
        assert await seen.may_write_history([own])
        assert not await seen.may_write_history([own, other])
        assert not await seen.may_write_history([])
        assert not await seen.may_read(own)
        assert await (await viewer(ClusterAccess(accounts.client), everywhere)).may_write_history([own, other])

    await eventually(writes)


async def test_the_token_is_for_this_audience(cluster: Cluster, accounts: Accounts) -> None:
    for_api, for_us = await accounts.token("reader"), await accounts.token("reader", AUDIENCE)
    ours, plain = ClusterAccess(accounts.client, audiences=[AUDIENCE]), ClusterAccess(accounts.client)
    assert (await viewer(plain, for_api)).name == accounts.user("reader")
    with pytest.raises(AuthenticationRequired):
        await viewer(ours, for_api)
    # One for another server only must not let in here: that server could use it.
    with pytest.raises(AuthenticationRequired):
        await viewer(plain, for_us)
    assert (await viewer(ours, for_us)).name == accounts.user("reader")
    both = ClusterAccess(accounts.client, audiences=[AUDIENCE, ""])
    for token in (for_api, for_us):
        assert (await viewer(both, token)).name == accounts.user("reader")
    with pytest.raises(AuthenticationRequired):
        await viewer(both, await accounts.token("reader", "https://elsewhere.example"))


def signed(token: str, key: Path, **changed: Any) -> str:
    """The token with other claims, signed by the key of the API server."""

    def encode(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    head, payload, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    text = f"{head}.{encode(json.dumps({**claims, **changed}).encode())}"
    command = ["openssl", "dgst", "-sha256", "-sign", str(key)]
    made = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    return f"{text}.{encode(made.stdout)}"


async def test_bad_and_expired_tokens_are_refused(
    cluster: Cluster, accounts: Accounts, control_planes: ControlPlanes
) -> None:
    access = ClusterAccess(accounts.client)
    token = await accounts.token("reader")
    bad = ["x", token[:-1], token + "x", token.upper(), "é", "a b", "a\nb", "a" * 20_000, ""]
    if not cluster.embedded:
        now = int(cluster.wall())
        key = control_planes.get(cluster.name).ca_file.parent.parent / "sa.key"
        assert (await viewer(access, signed(token, key, exp=now + 600, jti="later"))).name
        bad += [signed(token, key, exp=now - 600), signed(token, key, iss="https://elsewhere")]
        head, payload, _ = token.split(".")
        unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').decode()
        bad += [f"{head}.{payload}.", f"{unsigned}.{payload}."]
    for one in bad:
        with pytest.raises(AuthenticationRequired):
            await viewer(access, one)
    assert (await viewer(access, token)).name == accounts.user("reader")


async def test_a_revocation_counts_within_a_minute(
    cluster: Cluster, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not cluster.embedded:
        # Time is real there.
        monkeypatch.setattr(cluster_access, "VALID_SECONDS", 1.0)
    own = cluster.namespace
    access = ClusterAccess(accounts.client)
    token = await accounts.token("reader")
    await accounts.grant("one", "reader", READ, own)

    async def readable() -> None:
        assert await (await viewer(ClusterAccess(accounts.client), token)).may_read(own)

    await eventually(readable)
    # It has long been here when the binding goes, as a page that is open.
    seen = await viewer(access, token)
    assert await seen.may_read(own)
    await accounts.revoke("one", own)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await read_until(lambda: seen.may_read(own), lambda found: not found, within=60, every=1)
    took = loop.time() - began
    assert (await viewer(access, token)).name == accounts.user("reader")
    await accounts.remove("reader")

    async def unknown() -> bool:
        try:
            await viewer(access, token)
        except AuthenticationRequired:
            return True
        return False

    began = loop.time()
    await eventually(unknown, within=60, every=1)
    if cluster.embedded:
        # Elsewhere time is real, and the machine may be busy.
        assert took <= 60
        assert loop.time() - began <= 60


async def test_without_an_answer_of_the_api_server_no_viewer_is_admitted(cluster: Cluster) -> None:
    """The API server of 1.36 here serves no TokenReview; others are made unreachable."""
    client = await cluster.client()
    if cluster.name != "1.36":
        await client.close()
    else:
        with pytest.raises(NotFound):
            await review_token(client, "x")
    with pytest.raises(AccessUnavailable, match="does not confirm your identity"):
        await viewer(ClusterAccess(client), "some-token")

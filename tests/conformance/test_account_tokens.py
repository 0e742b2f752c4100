"""Tokens of ServiceAccounts, on every API server alike: TokenRequest, TokenReview, and the errors of both."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.resources import PODS, SERVICEACCOUNTS, TOKENREVIEWS
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.pods import pod_manifest

Json = dict[str, Any]


class Accounts:
    """A client in the test's namespace, with the ServiceAccounts `default` and `other`."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def request(self, account: str = "default", **spec: Any) -> Json:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], **spec}}
        answer = await self.client.create(
            SERVICEACCOUNTS, orjson.dumps(body), self.namespace, name=account, subresource="token"
        )
        found: Json = orjson.loads(answer)
        return found

    async def review(self, token: str, *audiences: str) -> Json:
        spec = {"token": token, "audiences": list(audiences)}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        status: Json = orjson.loads(await self.client.create(TOKENREVIEWS, orjson.dumps(body)))["status"]
        return status

    async def until_ended(self, token: str) -> None:
        """Wait until the token is refused. Real API servers remember reviews for ten seconds."""

        async def probe() -> None:
            assert (await self.review(token, "a")).get("authenticated") is not True

        await eventually(probe, within=30)

    async def pod(self, name: str, account: str = "default") -> Json:
        body = pod_manifest(name=name, namespace=self.namespace, serviceAccountName=account)
        metadata: Json = orjson.loads(await self.client.create(PODS, orjson.dumps(body), self.namespace))["metadata"]
        return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": metadata["uid"]}


@pytest.fixture
async def accounts(cluster: Cluster) -> Accounts:
    cluster.skip_without_tokens()
    client = await cluster.client()
    for name in ("default", "other"):
        if not (cluster.embedded and name == "default"):
            await client.create(SERVICEACCOUNTS, orjson.dumps({"metadata": {"name": name}}), cluster.namespace)
    return Accounts(client, cluster.namespace)


async def test_a_token_of_a_pod(accounts: Accounts) -> None:
    reference = await accounts.pod("p")
    made = await accounts.request(audiences=["a", "b"], boundObjectRef=reference, expirationSeconds=700)
    assert made["spec"] == {"audiences": ["a", "b"], "expirationSeconds": 700, "boundObjectRef": reference}
    token = made["status"]["token"]
    claims = orjson.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["exp"] - claims["iat"] == 700
    assert claims["kubernetes.io"]["namespace"] == accounts.namespace
    assert claims["kubernetes.io"]["pod"] == {"name": "p", "uid": reference["uid"]}
    status = await accounts.review(token, "b", "c")
    assert (status["authenticated"], status["audiences"]) == (True, ["b"])
    user = status["user"]
    assert user["username"] == f"system:serviceaccount:{accounts.namespace}:default"
    assert "system:serviceaccounts" in user["groups"]
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    assert user["extra"]["authentication.kubernetes.io/pod-uid"] == [reference["uid"]]
    assert (await accounts.review(token, "c")).get("authenticated") is not True


async def test_an_unbound_token_names_no_pod(accounts: Accounts) -> None:
    made = await accounts.request()
    status = await accounts.review(made["status"]["token"], "a")
    assert status["authenticated"] is True
    assert "authentication.kubernetes.io/pod-name" not in (status["user"].get("extra") or {})


async def test_a_token_ends_with_its_pod(accounts: Accounts) -> None:
    token = (await accounts.request(boundObjectRef=await accounts.pod("p")))["status"]["token"]
    assert (await accounts.review(token, "a"))["authenticated"] is True
    await accounts.client.delete(PODS, "p", accounts.namespace, grace_period_seconds=0)
    await accounts.until_ended(token)
    await accounts.pod("p")
    await accounts.until_ended(token)


async def test_a_token_ends_with_its_account(accounts: Accounts) -> None:
    token = (await accounts.request("other"))["status"]["token"]
    assert (await accounts.review(token, "a"))["authenticated"] is True
    await accounts.client.delete(SERVICEACCOUNTS, "other", accounts.namespace)
    await accounts.until_ended(token)


@pytest.mark.parametrize("token", ["x", "a.b.c", "..", "e30.e30.e30", "ä.b.c"])
async def test_no_token(accounts: Accounts, token: str) -> None:
    status = await accounts.review(token, "a")
    assert status.get("authenticated") is not True
    assert status["error"]


async def test_bad_requests(accounts: Accounts) -> None:
    reference = await accounts.pod("p", "other")

    async def refused(code: int, text: str, account: str = "default", **spec: Any) -> None:
        with pytest.raises(ApiError) as caught:
            await accounts.request(account, **spec)
        assert caught.value.code == code
        assert text in caught.value.message

    await refused(422, "may not specify a duration less than 10 minutes", expirationSeconds=599)
    await refused(422, "may not specify a duration larger than 2^32 seconds", expirationSeconds=2**33)
    await refused(404, 'serviceaccounts "absent" not found', "absent")
    await refused(404, 'pods "absent" not found', boundObjectRef={**reference, "name": "absent"})
    await refused(409, "does not match the UID in record", "other", boundObjectRef={**reference, "uid": "u"})
    await refused(400, "different serviceaccount name", boundObjectRef=reference)
    await refused(
        400, "cannot bind token to object of type /v1, Kind=Node", boundObjectRef={**reference, "kind": "Node"}
    )

"""An admission webhook, as API servers ask it: over TLS, on this machine."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson
from aiohttp import web

from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.resources import NAMESPACES, PODS, Resource
from tests.support.certificates import Certificates
from tests.support.eventually import eventually
from tests.support.pods import pod_manifest

WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
NAME: Final = "x.example.com"


class Webhook:
    """Allows all that it is asked about, unless ``denies`` is set."""

    def __init__(self) -> None:
        self.denies: dict[str, Any] | None = None
        """The Status of its denials; an empty one is a denial without a word."""

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        review = orjson.loads(await request.read())
        answer: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": self.denies is None}
        if self.denies:
            answer["status"] = self.denies
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer})


def told(denial: dict[str, Any]) -> dict[str, Any]:
    """The Status that an API server sends its client after that denial."""
    code = max(denial.get("code", 0), 400)
    words = denial.get("message") or denial.get("reason")
    message = f'admission webhook "{NAME}" denied the request' + (f": {words}" if words else " without explanation")
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **denial} | {
        "message": message,
        "code": code,
    }


async def _is_asked(hook: Webhook, client: KubeClient, namespace: str) -> None:
    """Raise AssertionError unless the API server has taken notice of the webhook."""
    hook.denies = {"code": 418}
    body = orjson.dumps(pod_manifest(name="nobody", namespace=namespace))
    try:
        await client.raw("POST", PODS.path(namespace), body=body, query={"dryRun": "All"})
    except ApiError as error:
        if error.code != 418:
            raise
        hook.denies = None
        return
    raise AssertionError("the webhook is not asked")


@asynccontextmanager
async def webhook(client: KubeClient, namespace: str, certificates: Certificates) -> AsyncIterator[Webhook]:
    """A webhook for creations of Pods in the namespace, which gets the label that it selects."""
    label = orjson.dumps({"metadata": {"labels": {"admission": namespace}}})
    await client.patch(NAMESPACES, namespace, label, content_type=MERGE_PATCH)
    hook = Webhook()
    runner = web.ServerRunner(web.Server(hook))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificates.server_context())
    await site.start()
    (address,) = runner.addresses
    name = f"{namespace}-pods"
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": NAME,
                "clientConfig": {
                    "url": f"https://127.0.0.1:{address[1]}/",
                    "caBundle": base64.b64encode(certificates.ca.read_bytes()).decode(),
                },
                "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"admission": namespace}},
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    try:
        await client.create(WEBHOOKS, orjson.dumps(body))
        try:
            await eventually(lambda: _is_asked(hook, client, namespace))
            yield hook
        finally:
            await client.delete(WEBHOOKS, name)
    finally:
        await runner.cleanup()

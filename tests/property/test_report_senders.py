"""T in random histories: tokens of all kinds, Pods that come and go, and an API server that fails."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, cast

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from frameworkcontroller.api import names
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ObjectNotFound, TransportError
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.reports import podtokens
from frameworkcontroller.reports.podtokens import REFUSED_BURST, AttemptPath, PodTokens, ReportRefused
from tests.support.virtual_clock import run, wall

NAMESPACES: Final = ("n1", "n2")
FRAMEWORKS: Final = ("f1", "f2")
LIFE_SEC: Final = 600.0


@dataclass(frozen=True)
class Token:
    """A token. ``signed``: by the API server. ``bound``: to a Pod, which has that index in the order of creations."""

    namespace: str
    audience: str
    pod: int | None
    signed: bool
    expires: float
    number: int

    def text(self, cluster: Tokens) -> str:
        """The token as a sender has it."""
        bound: dict[str, Any] = {"namespace": self.namespace}
        if self.pod is not None:
            bound["pod"] = {"name": cluster.pods[self.pod]["name"], "uid": f"pod-{self.pod}"}
        claims = {"aud": [self.audience], "exp": self.expires, "kubernetes.io": bound, "jti": self.number}
        return f"e30.{base64.urlsafe_b64encode(orjson.dumps(claims)).decode().rstrip('=')}.x"


@dataclass
class Tokens:
    """An API server that reviews tokens and shows Pods."""

    pods: list[dict[str, Any]] = field(default_factory=list)
    signed: dict[str, Token] = field(default_factory=dict)
    deleted: dict[int, float] = field(default_factory=dict)
    """When Pods were deleted."""
    fails: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, namespace: str, framework: str | None) -> int:
        """Create a Pod, of a Framework or of none, in place of one of the same name."""
        name = "alone" if framework is None else f"{framework}-worker-0"
        for index, pod in enumerate(self.pods):
            if (pod["namespace"], pod["name"]) == (namespace, name):
                self.deleted.setdefault(index, wall())
        self.pods.append({"namespace": namespace, "framework": framework, "name": name})
        return len(self.pods) - 1

    def valid(self, token: Token, now: float) -> bool:
        """Whether the API server takes the token for its own audience."""
        return (
            token.signed
            and now < token.expires
            and (token.pod is None or (token.pod not in self.deleted and token.namespace == self._of(token)))
        )

    def _of(self, token: Token) -> str:
        assert token.pod is not None
        return str(self.pods[token.pod]["namespace"])

    async def create(self, resource: Resource, body: bytes, *_: Any, **__: Any) -> bytes:
        self.counts["review"] += 1
        await asyncio.sleep(0.01)
        if self.fails:
            raise TransportError("connection reset")
        spec = orjson.loads(body)["spec"]
        token = self.signed.get(spec["token"])
        if token is None or not self.valid(token, wall()) or token.audience not in spec["audiences"]:
            return b'{"status": {"user": {}, "error": "invalid bearer token"}}'
        user: dict[str, Any] = {"username": f"system:serviceaccount:{token.namespace}:default"}
        if token.pod is not None:
            pod = self.pods[token.pod]
            user["extra"] = {
                "authentication.kubernetes.io/pod-name": [pod["name"]],
                "authentication.kubernetes.io/pod-uid": [f"pod-{token.pod}"],
            }
        return orjson.dumps({"status": {"authenticated": True, "user": user, "audiences": [token.audience]}})

    async def get(self, resource: Resource, name: str, namespace: str | None = None, **_: Any) -> bytes:
        self.counts["get"] += 1
        await asyncio.sleep(0.01)
        if self.fails:
            raise TransportError("connection reset")
        for index, pod in reversed(list(enumerate(self.pods))):
            if (pod["namespace"], pod["name"]) == (namespace, name) and index not in self.deleted:
                metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": f"pod-{index}"}
                if pod["framework"] is not None:
                    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{pod['framework']}-attempt"}
                    metadata["ownerReferences"] = [{**owner, "uid": f"uid-{index}", "controller": True}]
                return orjson.dumps({"metadata": metadata})
        raise ObjectNotFound("not found", code=404)


@dataclass(frozen=True)
class Event:
    """After ``wait`` seconds: ``act``, with a number that chooses among the Pods or tokens that there are."""

    act: str
    wait: float = 0.0
    number: int = 0
    other: int = 0


def check(events: list[Event]) -> None:
    """Play the events. A report is taken only for a Pod of the Framework in its path, and by a valid token."""

    async def main() -> None:
        api = Tokens()
        authentication = PodTokens(cast("KubeClient", api), asyncio.get_running_loop().time, wall)
        tokens: list[Token] = []
        for event in events:
            await asyncio.sleep(event.wait)
            if event.act == "pod" or not api.pods:
                framework = (*FRAMEWORKS, None)[event.other % 3]
                api.add(NAMESPACES[event.number % 2], framework)
                continue
            pod = event.number % len(api.pods)
            if event.act == "delete":
                api.deleted.setdefault(pod, wall())
            elif event.act == "fail":
                api.fails = not api.fails
            elif event.act == "token" or not tokens:
                tokens.append(_token(api, pod, event.other, len(tokens)))
            else:
                await _report(api, authentication, tokens[event.number % len(tokens)], event.other)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait([task])

    run(main())


def _token(api: Tokens, pod: int, kind: int, number: int) -> Token:
    audience = "other" if kind == 1 else names.PROGRESS_AUDIENCE
    bound = None if kind == 2 else pod
    made = Token(api.pods[pod]["namespace"], audience, bound, kind != 3, wall() + LIFE_SEC, number)
    if made.signed:
        api.signed[made.text(api)] = made
    return made


async def _report(api: Tokens, authentication: PodTokens, token: Token, path: int) -> None:
    target = AttemptPath(NAMESPACES[path % 2], FRAMEWORKS[path // 2 % 2], 0)
    now = wall()
    try:
        found = await authentication.find(token.text(api), target, f"10.0.0.{token.number}")
    except ReportRefused as refused:
        pod = {} if token.pod is None else api.pods[token.pod]
        is_right = (pod.get("namespace"), pod.get("framework")) == target[:2]
        if is_right and api.valid(token, now) and token.audience == names.PROGRESS_AUDIENCE:
            assert api.fails, f"a right token is refused: {refused}"  # noqa: PT017 - of the model, not of it
        return
    assert token.audience == names.PROGRESS_AUDIENCE, "a token for others is taken"
    assert token.pod is not None, "an unbound token is taken"
    assert token.signed, "a forged token is taken"
    pod = api.pods[token.pod]
    assert (pod["namespace"], pod["framework"]) == target[:2], "a token of another Framework is taken"
    assert now - api.deleted.get(token.pod, now) <= 60.0, "the token of a deleted Pod is taken"
    assert now <= token.expires, "an expired token is taken"
    assert found.configmap_uid == f"uid-{token.pod}", "the report goes to another attempt"


@given(
    st.lists(
        st.builds(
            Event,
            act=st.sampled_from(["pod", "token", "token", "report", "report", "report", "report", "delete", "fail"]),
            wait=st.sampled_from([0.0, 1.0, 15.0, 61.0, 300.0]),
            number=st.integers(0, 6),
            other=st.integers(0, 5),
        ),
        min_size=4,
        max_size=40,
    )
)
@settings(max_examples=400)
def test_only_pods_of_the_attempt_report(events: list[Event]) -> None:
    check(events)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.0, 0.1, 1.0])), min_size=50, max_size=200))
@settings(max_examples=40)
def test_invalid_tokens_cost_few_reviews(sent: list[tuple[int, float]]) -> None:
    """Senders invent tokens with claims that fit; a Pod with a token still reports."""

    async def main() -> None:
        api = Tokens()
        loop = asyncio.get_running_loop()
        authentication = PodTokens(cast("KubeClient", api), loop.time, wall)
        pod = api.add("n1", "f1")
        right = _token(api, pod, 0, 0)
        target = AttemptPath("n1", "f1", 0)
        began = loop.time()
        for number, (address, wait) in enumerate(sent, 1):
            try:
                await authentication.find(_token(api, pod, 3, number).text(api), target, f"10.0.0.{address}")
            except ReportRefused:
                pass
            else:
                raise AssertionError("a forged token is taken")
            await asyncio.sleep(wait)
        await authentication.find(right.text(api), target, "10.0.1.1")
        budget = 4 * (REFUSED_BURST + podtokens.REFUSED_PER_SEC * (loop.time() - began)) + 1
        assert api.counts["review"] <= budget

    run(main())


@given(st.lists(st.sampled_from([0.0, 0.5, 5.0, 20.0]), min_size=1, max_size=60))
@settings(max_examples=40)
def test_a_token_is_reviewed_once_a_minute(waits: list[float]) -> None:
    async def main() -> None:
        api = Tokens()
        loop = asyncio.get_running_loop()
        authentication = PodTokens(cast("KubeClient", api), loop.time, wall)
        right = _token(api, api.add("n1", "f1"), 0, 0)
        began = loop.time()
        for wait in waits:
            if wall() < right.expires:
                await authentication.find(right.text(api), AttemptPath("n1", "f1", 0), "10.0.0.1")
            await asyncio.sleep(wait)
        assert api.counts["review"] <= 1 + (loop.time() - began) / 60
        assert api.counts["get"] == 1

    run(main())

"""The deployment: the manifests, applied by kubectl on real API servers, and the controller as they start it."""

import asyncio
import base64
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.cli.certificates import Certificate
from frameworkcontroller.cli.main import build_parser
from frameworkcontroller.config.config import load_config
from frameworkcontroller.kube.resources import CONFIGMAPS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.support.claims import claim_spec
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until
from tests.support.frameworks import Frameworks, role
from tests.support.kubectl import Answer, Kubectl
from tests.support.objects import items

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
BUILT = sorted(
    file.parent.relative_to(MANIFESTS)
    for file in MANIFESTS.rglob("kustomization.yaml")
    if yaml.safe_load(file.read_text())["kind"] == "Kustomization"
)

CERTIFICATES = ("archive-tls", "dashboard-tls")
"""Secrets that components/archive-cert-manager or scripts/archive-certificates makes."""

OLD_SERVER = 'no matches for kind "PodDisruptionBudget" in version "policy/v1"'
"""Before Kubernetes 1.21."""


@pytest.fixture
def real(cluster: Cluster) -> Cluster:
    if cluster.embedded:
        pytest.skip("the embedded cluster runs no controllers in its Pods, and tells no service accounts apart")
    return cluster


async def documents(kubectl: Kubectl, folder: Path) -> list[dict[str, Any]]:
    """The objects that a folder's kustomization makes."""
    return list(yaml.safe_load_all(await kubectl.ok("kustomize", str(MANIFESTS / folder))))


async def overlaid(
    kubectl: Kubectl, tmp_path: Path, folder: str, *components: str, **fields: str
) -> list[dict[str, Any]]:
    """The objects of an overlay of a folder with these components."""
    paths = [os.path.relpath(MANIFESTS / path, tmp_path) for path in (folder, *(f"components/{c}" for c in components))]
    overlay = {"resources": paths[:1], "components": paths[1:], **fields}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return await documents(kubectl, tmp_path)


def only(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (one,) = (document for document in found if document["kind"] == kind)
    return one


def namespaces(made: list[dict[str, Any]]) -> set[str]:
    return {one["metadata"]["namespace"] for one in made if "namespace" in one["metadata"]}


async def apply(cluster: Cluster, kubectl: Kubectl, made: list[dict[str, Any]], *options: str) -> Answer:
    """Apply them all; those without a namespace have no use for one."""
    (namespace,) = namespaces(made) or {"default"}
    # As docs/operations.md says: an API server that does not know the definition's rule drops it, but only from a
    # request that is neither validated nor a server-side apply.
    how = ["--validate=false"] if cluster.name == "1.20" else ["--server-side", "--force-conflicts"]
    return await kubectl("apply", *how, f"--namespace={namespace}", *options, "-f", "-", stdin=yaml.safe_dump_all(made))


@pytest.mark.parametrize("folder", BUILT, ids=str)
async def test_every_kustomization_is_accepted(real: Cluster, kubectl: Kubectl, folder: Path) -> None:
    made = await documents(kubectl, folder)
    foreign = [one for one in made if one["apiVersion"].startswith("monitoring.coreos.com/")]
    accepted = [one for one in made if one not in foreign]
    for namespace in namespaces(accepted):
        await kubectl("create", "namespace", namespace)
    answer = await apply(real, kubectl, accepted, "--dry-run=server")
    expected = (OLD_SERVER, "ensure CRDs", "kubectl.kubernetes.io/last-applied-configuration")
    assert [line for line in answer.err.splitlines() if not any(text in line for text in expected)] == []
    if foreign:
        assert folder.name == "prometheus"


@pytest.mark.parametrize("folder", BUILT, ids=str)
@pytest.mark.virtual_clock
async def test_names_refer_to_existing_objects(kubectl: Kubectl, folder: Path) -> None:
    check_names(await documents(kubectl, folder))


def check_names(made: list[dict[str, Any]]) -> None:
    """Every name of another object is the name of one."""
    named = {(other["kind"], other["metadata"]["name"]) for other in made}
    pods = [one for one in made if one["kind"] in ("StatefulSet", "Deployment")]
    for one in pods:
        spec = one["spec"]["template"]["spec"]
        assert ("ServiceAccount", spec["serviceAccountName"]) in named
        if one["kind"] == "StatefulSet":
            assert ("Service", one["spec"]["serviceName"]) in named
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        for volume in volumes.values():
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in named
            if "secret" in volume:
                assert volume["secret"]["secretName"] in CERTIFICATES
        claims = {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])}
        (container,) = spec["containers"]
        assert {mount["name"] for mount in container.get("volumeMounts", [])} == set(volumes) | claims
    labels = {tuple(sorted(one["spec"]["template"]["metadata"]["labels"].items())) for one in pods}
    for one in made:
        selector = one.get("spec", {}).get("selector", {}) if one["kind"] in ("Service", "PodDisruptionBudget") else {}
        if selector:
            wanted = set(selector.get("matchLabels", selector).items())
            # Of exactly one: a Service or a budget of two programs would be wrong for both.
            assert len([pod for pod in labels if wanted <= set(pod)]) == 1
    for binding in (one for one in made if one["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in {
            (other["kind"], other["metadata"]["name"]) for other in made
        }


@pytest.mark.parametrize("component", ["kueue", "gang", "disruption-budgets", "history"])
@pytest.mark.parametrize("folder", ["base", "overlays/single", "overlays/single-namespace"])
@pytest.mark.virtual_clock
async def test_a_component_grants_to_the_controller(
    kubectl: Kubectl, tmp_path: Path, folder: str, component: str
) -> None:
    """It adds rules to the one role for the objects of Frameworks, which is bound to the controller's account."""

    def roles(made: list[dict[str, Any]]) -> dict[tuple[str, str], list[Any]]:
        return {(one["kind"], one["metadata"]["name"]): one["rules"] for one in made if "rules" in one}

    made = await overlaid(kubectl, tmp_path, folder, component)
    before, after = roles(await documents(kubectl, Path(folder))), roles(made)
    ((kind, name),) = (role for role in after if after[role] != before.get(role))
    assert after.keys() == before.keys()
    shared = len(before[kind, name])
    assert after[kind, name][:shared] == before[kind, name]
    assert after[kind, name][shared:]
    (binding,) = (
        one
        for one in made
        if one["kind"].endswith("Binding") and (one["roleRef"]["kind"], one["roleRef"]["name"]) == (kind, name)
    )
    account = only(made, "ServiceAccount")["metadata"]
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    if "namespace" in folder:
        assert (kind, binding["metadata"]["namespace"]) == ("Role", account["namespace"])


@pytest.mark.virtual_clock
async def test_kueue_itself_may_find_the_frameworks_of_pods(kubectl: Kubectl, tmp_path: Path) -> None:
    """In all namespaces, for each kind that its configuration names; also in an overlay with another namespace."""
    made = await overlaid(kubectl, tmp_path, "base", "kueue-integration", namespace="elsewhere")
    name = "frameworkcontroller-kueue-integration"
    (binding,) = (one for one in made if one["kind"] == "ClusterRoleBinding" and one["metadata"]["name"] == name)
    account = {"kind": "ServiceAccount", "name": "kueue-controller-manager", "namespace": "kueue-system"}
    assert (binding["roleRef"]["name"], binding["subjects"]) == (name, [account])
    (cluster_role,) = (one for one in made if one["kind"] == "ClusterRole" and one["metadata"]["name"] == name)
    assert all(rule["verbs"] == ["get", "list", "watch"] for rule in cluster_role["rules"])
    kinds = {
        (group, resource)
        for rule in cluster_role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert kinds == {("", "configmaps"), (FRAMEWORKS.group, FRAMEWORKS.plural)}
    config = yaml.safe_load((ROOT / "examples/kueue/admin/controller_manager_config.yaml").read_text())
    known = {f"{one.kind}.{one.version}.{one.group}" for one in (CONFIGMAPS, FRAMEWORKS)}
    assert set(config["integrations"]["externalFrameworks"]) == known


@pytest.mark.parametrize("folder", ["base", "overlays/single-namespace"])
@pytest.mark.virtual_clock
async def test_the_history_has_a_token_of_its_own(kubectl: Kubectl, tmp_path: Path, folder: str) -> None:
    """The archive could use one for the API server to act as the controller."""
    made = await overlaid(kubectl, tmp_path, folder, "history")
    pod = only(made, "StatefulSet")["spec"]["template"]["spec"]
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "history-token")
    (volume,) = (one for one in pod["volumes"] if one["name"] == mount["name"])
    source, authority = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "frameworkcontroller-history"
    # The component names the settings that a user has to make.
    text = (MANIFESTS / "components" / "history" / "kustomization.yaml").read_text()
    assert f"caFile: {mount['mountPath']}/{authority['secret']['items'][0]['path']}\n" in text
    assert f"tokenFile: {mount['mountPath']}/{source['serviceAccountToken']['path']}\n" in text


@pytest.mark.parametrize(
    ("folder", "scope", "more"),
    [
        ("base", "", ()),
        ("base", "", ("archive-postgresql",)),
        ("overlays/single", "", ()),
        ("overlays/single-namespace", "-single-namespace", ()),
    ],
)
@pytest.mark.virtual_clock
async def test_archive_and_pages_have_the_permissions_that_they_need(
    kubectl: Kubectl, tmp_path: Path, folder: str, scope: str, more: tuple[str, ...]
) -> None:
    names = ["history", *(f"{name}{scope}" for name in ("archive", "dashboard")), *more]
    made = await overlaid(kubectl, tmp_path, folder, *names)
    check_names(made)
    assert len(namespaces(made)) == 1
    granted = list(made)
    if scope:
        # A cluster administrator's additional grants.
        for name in ("archive", "dashboard"):
            granted += yaml.safe_load_all((MANIFESTS / f"components/{name}{scope}/cluster.yaml").read_text())
        assert not [one for one in made if one["kind"].startswith("ClusterRole")]
    accounts = {
        (one["metadata"]["name"], one["metadata"]["namespace"]) for one in made if one["kind"] == "ServiceAccount"
    }
    roles = {(one["kind"], one["metadata"]["name"]) for one in granted}
    bound = set()
    for binding in (one for one in granted if one["kind"].endswith("RoleBinding")):
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles
        for subject in binding["subjects"]:
            assert (subject["name"], subject["namespace"]) in accounts
            bound.add(subject["name"])
    assert bound == {"frameworkcontroller", "frameworkcontroller-archive", "frameworkcontroller-dashboard"}
    for one in made:
        if one["kind"] in ("StatefulSet", "Deployment"):
            (container,) = one["spec"]["template"]["spec"]["containers"]
            assert container["image"] == "frameworkcontroller:0.1.0"
            settings = one["spec"]["template"]["spec"]["securityContext"], container["securityContext"]
            assert (settings[0]["runAsNonRoot"], settings[1]["readOnlyRootFilesystem"]) == (True, True)
            if one["metadata"]["name"] != "frameworkcontroller":
                build_parser().parse_args(container["args"])


@pytest.mark.virtual_clock
async def test_the_overlay_joins_controller_archive_and_pages(kubectl: Kubectl) -> None:
    made = await documents(kubectl, Path("overlays/history"))
    (config,) = (one for one in made if one["kind"] == "ConfigMap")
    history = yaml.safe_load(config["data"]["frameworkcontroller.yaml"])["history"]
    services = {one["metadata"]["name"]: one for one in made if one["kind"] == "Service"}
    assert history["url"] == f"https://archive.{services['archive']['metadata']['namespace']}.svc/v1/records"
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in made if "template" in one.get("spec", {})
    }
    # The controller's token is there, and for the archive.
    controller = pods["frameworkcontroller"]
    (mount,) = (one for one in controller["containers"][0]["volumeMounts"] if one["name"] == "history-token")
    (volume,) = (one for one in controller["volumes"] if one["name"] == "history-token")
    source, authority = volume["projected"]["sources"]
    assert history["caFile"] == f"{mount['mountPath']}/{authority['secret']['items'][0]['path']}"
    assert history["tokenFile"] == f"{mount['mountPath']}/{source['serviceAccountToken']['path']}"
    archive = pods["frameworkcontroller-archive"]["containers"][0]
    assert f"--audience={source['serviceAccountToken']['audience']}" in archive["args"]
    assert (
        f"--history=https://{services['archive']['metadata']['name']}"
        in (pods["frameworkcontroller-dashboard"]["containers"][0]["args"])
    )


@pytest.mark.virtual_clock
async def test_the_full_overlay_has_every_permission_and_setting(kubectl: Kubectl, tmp_path: Path) -> None:
    made = await documents(kubectl, Path("overlays/full"))
    check_names(made)
    granted = {one["metadata"]["name"]: one["rules"] for one in made if one["kind"] == "ClusterRole"}
    for feature in ("kueue", "gang", "disruption-budgets", "history", "progress"):
        added = await overlaid(kubectl, tmp_path, "base", feature)
        (role,) = (
            one for one in added if one["metadata"]["name"] == "frameworkcontroller" and one["kind"] == "ClusterRole"
        )
        assert [rule for rule in role["rules"] if rule not in granted["frameworkcontroller"]] == []
    assert {"frameworkcontroller-archive", "frameworkcontroller-dashboard"} <= granted.keys()
    (config,) = (one for one in made if one["kind"] == "ConfigMap")
    (with_history,) = (one for one in await documents(kubectl, Path("overlays/history")) if one["kind"] == "ConfigMap")
    text, other = (yaml.safe_load(one["data"]["frameworkcontroller.yaml"]) for one in (config, with_history))
    assert text == {**other, "kueue": {"mode": "enabled"}, "progressReports": {"bindAddress": ":10281"}}


@pytest.mark.virtual_clock
async def test_archive_and_pages_are_served_with_the_certificates_that_are_made(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    """By cert-manager, or by the script: for the names by which clients connect, and with the authority they trust."""
    names = ["history", "archive", "dashboard", "archive-cert-manager", "archive-monitoring"]
    made = await overlaid(kubectl, tmp_path, "base", *names)
    wanted = {"archive-tls": {"archive", "archive.frameworkcontroller.svc"}, "dashboard-tls": {"dashboard"}}
    signed = {one["spec"]["secretName"]: one["spec"] for one in made if one["kind"] == "Certificate"}
    for name, hosts in wanted.items():
        assert hosts <= set(signed[name]["dnsNames"])
    script = str(ROOT / "scripts" / "archive-certificates")
    run = await asyncio.create_subprocess_exec(script, "frameworkcontroller", stdout=asyncio.subprocess.PIPE)
    printed, _ = await run.communicate()
    assert run.returncode == 0
    secrets = {one["metadata"]["name"]: one["data"] for one in yaml.safe_load_all(printed)}
    assert set(secrets) == set(wanted) == set(CERTIFICATES)
    files = {}
    for name, data in secrets.items():
        for key, content in data.items():
            files[key] = tmp_path / key
            files[key].write_bytes(base64.b64decode(content))
        server, client = (
            Certificate(files["tls.crt"], files["tls.key"]),
            ssl.create_default_context(cafile=files["ca.crt"]),
        )
        for host in (*wanted[name], "localhost"):
            shake_hands(server.context, client, host)
    # Every argument of the archive and the pages that names a file names one that is mounted.
    for one in (
        one
        for one in made
        if one["metadata"]["name"] in ("frameworkcontroller-archive", "frameworkcontroller-dashboard")
    ):
        if one["kind"] not in ("StatefulSet", "Deployment"):
            continue
        (container,) = one["spec"]["template"]["spec"]["containers"]
        mounts = tuple(mount["mountPath"] for mount in container["volumeMounts"])
        paths = [text.partition("=")[2] for text in container["args"] if "=/" in text]
        assert paths
        assert all(path.startswith(mounts) for path in paths)
        # No list of processes shows the password.
        assert not [text for text in container["args"] if "DATABASE" in text or "postgresql" in text]
        assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    (policy,) = (one for one in made if one["kind"] == "NetworkPolicy" and "archive" in one["metadata"]["name"])
    (scraped,) = (one for one in made if one["kind"] == "PodMonitor")
    assert len(policy["spec"]["ingress"]) == 2
    account = scraped["spec"]["podMetricsEndpoints"][0]["authorization"]["credentials"]["name"]
    (token,) = (one for one in made if one["kind"] == "Secret")
    assert (
        token["metadata"]["name"] == token["metadata"]["annotations"]["kubernetes.io/service-account.name"] == account
    )


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Connect in memory. Raise SSLError if the client does not trust the server."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there, server_hostname=host), server.wrap_bio(there, back, server_side=True)]
    for end in ends * 3:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert ends[0].getpeercert()


@asynccontextmanager
async def deployed(
    cluster: Cluster, kubectl: Kubectl, made: list[dict[str, Any]], folder: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The controller as the StatefulSet starts it: its arguments, its configuration, its service account."""
    stateful = only(made, "StatefulSet")
    namespace = stateful["metadata"]["namespace"]
    pod = stateful["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    def here(text: str) -> str:
        for mount in container["volumeMounts"]:
            text = text.replace(mount["mountPath"], str(folder))
        return text

    arguments = list(map(here, container["args"]))
    for name, text in only(made, "ConfigMap")["data"].items():
        (folder / name).write_text(here(text) + "\nwebAddress: '0'\n")
    token = orjson.loads(
        await kubectl.ok(
            "create", "--raw", f"/api/v1/namespaces/{namespace}/serviceaccounts/{pod['serviceAccountName']}/token",
            "-f", "-", stdin=json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        )
    )["status"]["token"]  # fmt: skip
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    kubeconfig["contexts"][0]["context"]["namespace"] = namespace
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "frameworkcontroller", *arguments,
        env={"PATH": os.environ["PATH"], "KUBECONFIG": str(folder / "kubeconfig")},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        out, _ = await process.communicate()
        print(out.decode())
    # A thing that it may not do would be one of these.
    assert "forbidden" not in out.decode().lower()
    assert process.returncode == 0


def torchrun_of_the_page() -> dict[str, Any]:
    """The fields of docs/write-a-framework.md for torchrun."""
    blocks: list[str] = (ROOT / "docs/write-a-framework.md").read_text().split("```")
    (text,) = (block for block in blocks if block.startswith("yaml\nnetwork:"))
    spec: dict[str, Any] = yaml.safe_load(text.removeprefix("yaml\n"))
    return spec


@pytest.mark.parametrize("folder", ["base", "overlays/single-namespace"])
async def test_the_controller_works_with_the_permissions_of_the_manifests(
    real: Cluster, kubectl: Kubectl, pods: SimulatedRuntime, tmp_path: Path, folder: str
) -> None:
    if real.name == "1.36":
        pytest.skip("this build gives no tokens to service accounts")
    made = await documents(kubectl, Path(folder))
    namespace = only(made, "StatefulSet")["metadata"]["namespace"]
    frameworks = Frameworks(await real.client(), namespace if "single" in folder else real.namespace)
    await kubectl("create", "namespace", namespace)
    try:
        answer = await apply(real, kubectl, made)
        print(answer.out, answer.err)
        async with deployed(real, kubectl, made, tmp_path):
            await frameworks.create("b", role("a", 2, simulate={"run-seconds": 1}))
            await frameworks.create("torchrun", **torchrun_of_the_page())
            claims = [{"metadata": {"name": "data"}, "spec": claim_spec()}]
            await frameworks.create("claims", {**role(), "volumeClaimTemplates": claims})
            await frameworks.until_running("torchrun", 4)
            await frameworks.until_running("claims", 1)

            async def completed() -> None:
                status = (await frameworks.get("b")).get("status", {})
                assert status.get("state") == "Completed"

            await eventually(completed, within=60)
            client = await real.client()
            await read_until(
                lambda: items(client, CONFIGMAPS, frameworks.namespace),
                lambda found: [one for one in found if one["metadata"]["name"] == "b-attempt"] == [],
            )
            for name in ("b", "torchrun", "claims"):
                await frameworks.delete(name, "Foreground")
    finally:
        # Not the namespace: its end takes a while, and other tests of this API server create objects in it.
        await kubectl("delete", "--wait=false", f"--namespace={namespace}", "-f", "-", stdin=yaml.safe_dump_all(
            [one for one in made if one["kind"] not in ("CustomResourceDefinition", "Namespace")]
        ))  # fmt: skip


@pytest.mark.virtual_clock
async def test_the_configuration_is_one(kubectl: Kubectl, tmp_path: Path) -> None:
    for folder in BUILT:
        for made in await documents(kubectl, folder):
            if made["kind"] == "ConfigMap" and "frameworkcontroller.yaml" in made.get("data", {}):
                (tmp_path / "c.yaml").write_text(made["data"]["frameworkcontroller.yaml"])
                config = load_config(tmp_path / "c.yaml", required=True)
                assert config.leader_election.enabled
                assert config.pod_failure_spec

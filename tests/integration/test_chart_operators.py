"""Values of the Helm chart that render, and would leave a release that does not work."""

import re
from typing import Any, Final

import pytest
import yaml

from frameworkcontroller.api.names import NAME_PATTERN
from tests.integration.test_chart import CHART, rendered, run_helm

Json = dict[str, Any]

ARCHIVE: Final = "history.enabled=true,history.archive.priorityClassName=system-cluster-critical"


def pod_of_the_test(*values: str) -> Json:
    """The Pod of `helm test`."""
    ran = run_helm("template", "r", str(CHART), "--namespace=n", *(f"--set={one}" for one in values))
    assert ran.returncode == 0, ran.stderr
    found = [one for one in yaml.load_all(ran.stdout, yaml.CSafeLoader) if one and one["kind"] == "Pod"]
    (pod,) = found
    return dict(pod)


def test_the_framework_of_helm_test_has_a_valid_name_and_the_pull_policy() -> None:
    (container,) = pod_of_the_test("image.pullPolicy=IfNotPresent")["spec"]["containers"]
    name = re.search(r'Framework\(name="(.*?)"', container["args"][0])
    assert name is not None
    assert re.match(NAME_PATTERN, name[1])
    (template,) = (one["value"] for one in container["env"] if one["name"] == "POD")
    (main,) = yaml.safe_load(template)["spec"]["containers"]
    assert main["imagePullPolicy"] == container["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize("values", ["controller.priorityClassName=system-cluster-critical", ARCHIVE])
def test_critical_pods_have_a_quota(values: str) -> None:
    assert ("ResourceQuota", "frameworkcontroller-critical") in rendered("n", values)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ("config.webAddress=:9999", "config.webAddress must have port 10280"),
        ("config.webAddress=0", "config.webAddress must have port 10280"),
        (
            "progress.enabled=true,config.progressReports.bindAddress=:9999",
            "config.progressReports.bindAddress must have port 10281",
        ),
        ("config.leaderElection.enabled=false", "needs controller.replicas: 1"),
        ("namespaceScoped.enabled=true,config.namespace=other", "config.namespace must be the release's namespace"),
    ],
)
def test_configurations_that_contradict_the_objects_are_refused(values: str, complaint: str) -> None:
    ran = run_helm("template", str(CHART), "--namespace=n", f"--set={values}")
    assert ran.returncode != 0
    assert complaint in ran.stderr


@pytest.mark.parametrize(
    "values",
    [
        "config.webAddress=0.0.0.0:10280",
        "config.leaderElection.enabled=false,controller.replicas=1",
        "namespaceScoped.enabled=true,config.namespace=n",
    ],
)
def test_configurations_that_agree_with_the_objects_are_accepted(values: str) -> None:
    assert rendered("n", values)

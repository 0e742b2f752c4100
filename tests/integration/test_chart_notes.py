"""The notes that `helm install` prints."""

import re

import yaml

from frameworkcontroller.api.names import NAME_PATTERN
from tests.integration.test_chart import CHART, run_helm


def test_the_notes_have_a_framework_to_try() -> None:
    ran = run_helm("install", "r", str(CHART), "--namespace=n", "--dry-run=client", "--set=image.tag=t")
    assert ran.returncode == 0, ran.stderr
    notes = ran.stdout.partition("NOTES:")[2]
    assert "serves all namespaces" in notes
    found = re.search(r"<<END\n(.*?)\nEND", notes, re.DOTALL)
    assert found is not None
    framework = yaml.safe_load(found[1])
    assert re.match(NAME_PATTERN, framework["metadata"]["name"])
    (role,) = framework["spec"]["taskRoles"]
    assert role["task"]["pod"]["spec"]["containers"][0]["image"] == "frameworkcontroller:t"

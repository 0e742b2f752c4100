"""The Frameworks that the benchmarks run."""

from __future__ import annotations

from typing import Any

from benchmarks import node
from frameworkcontroller.api import names


def framework(name: str, tasks: int, *, execution: str = "Start") -> dict[str, Any]:
    """A Framework of one role ``a``; its Pods are like those of everyday: some 2 KB as made, 4 KB as stored."""
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", "exec python /app/train.py --data /data --epochs 90 --batch-size 256"],
        "env": [{"name": f"SETTING_{number}", "value": f"value of setting {number}"} for number in range(6)],
        "resources": {"limits": {"cpu": "4", "memory": "16Gi"}, "requests": {"cpu": "4", "memory": "16Gi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    pod = {
        "metadata": {"labels": {"app": "bench"}},
        "spec": {
            "nodeName": node.NAME,
            "restartPolicy": "Never",
            "hostNetwork": False,
            "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }
    role = {
        "name": "a",
        "taskNumber": tasks,
        "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceededTaskCount": -1},
        # So that a Pod that others delete is made anew.
        "task": {"pod": pod, "retryPolicy": {"fancyRetryPolicy": True}},
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {"executionType": execution, "taskRoles": [role]},
    }

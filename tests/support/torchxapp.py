"""Calls of TorchX's API in an environment that has it. Results are printed as JSON."""

import json
import sys
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from torchx.runner import get_runner
from torchx.specs import AppDef, BindMount, DeviceMount, Resource, RetryPolicy, Role, VolumeMount, macros

SCHEDULER = "frameworkcontroller"


def app() -> AppDef:
    """Return an app with every supported field, and names that are not valid in a Framework."""
    trainer = Role(
        name="my-trainer_v2",
        image="train:1",
        min_replicas=2,
        entrypoint="sh",
        args=["-c", f"train --index {macros.replica_id} --id {macros.app_id} --root '{macros.img_root}' $(date)"],
        env={"RANK0": macros.rank0_env, "PRICE": "$(HOME)"},
        num_replicas=4,
        max_retries=3,
        resource=Resource(
            cpu=8,
            gpu=2,
            memMB=1024,
            capabilities={"node.kubernetes.io/instance-type": "large"},
            devices={"vpc.amazonaws.com/efa": 1},
        ),
        port_map={"c10d": 29500},
        mounts=[
            BindMount("/data", "/mnt/data", read_only=True),
            VolumeMount("claim", "/mnt/claim"),
            DeviceMount("/dev/fuse", "/dev/fuse"),
        ],
        metadata={SCHEDULER: {"spec": {"serviceAccountName": "trainer"}}},
    )
    reader = Role(
        name="MyTrainer v2",
        image="",
        entrypoint="read",
        max_retries=2,
        retry_policy=RetryPolicy.REPLICA,
    )
    return AppDef(name="3D-Train", roles=[trainer, reader])


def dryrun() -> Any:
    """The manifests of two dry runs."""
    with get_runner() as runner:
        cfg = {"namespace": "ml", "queue": "team", "priority": "high", "gang": True, "code": [__file__]}
        requests = [runner.dryrun(app(), SCHEDULER, cfg).request for _ in range(2)]
    return [{"namespace": request.namespace, "manifest": request.framework.to_dict()} for request in requests]


def describe(app_id: str) -> Any:
    """The roles and the states of replicas; None if the app is gone."""
    with get_runner() as runner:
        handle = f"{SCHEDULER}://torchx/{app_id}"
        found, status = runner.describe(handle), runner.status(handle)
        return found and {"roles": [asdict(one) for one in found.roles], "status": asdict(status)}


def lines(app_id: str, role: str) -> Any:
    """Lines of the log, all and by time."""
    now, hour = datetime.now(), timedelta(hours=1)  # noqa: DTZ005 - as TorchX passes it
    times: dict[str, dict[str, datetime]] = {
        "all": {},
        "since": {"since": now + hour},
        "until": {"until": now - hour},
        "both": {"since": now - hour, "until": now + hour},
    }
    with get_runner() as runner:
        handle = f"{SCHEDULER}://torchx/{app_id}"
        return {key: list(runner.log_lines(handle, role, **bounds)) for key, bounds in times.items()}


def cancel(app_id: str) -> Any:
    """The states after the scheduler has cancelled it, once and again."""
    with get_runner() as runner:
        scheduler = runner._scheduler(SCHEDULER)
        found = []
        for _ in range(2):
            scheduler.cancel(app_id)
            found.append(scheduler.describe(app_id).state)
    return found


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:]), default=str))

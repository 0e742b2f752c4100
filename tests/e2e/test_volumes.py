"""Volume claims of Tasks, by the content that containers find in their volumes."""

from collections.abc import Sequence
from typing import Any

import orjson

from frameworkcontroller.kube.resources import Resource
from tests.e2e.stage import WITHIN, Play, play
from tests.support.eventually import eventually
from tests.support.frameworks import tasks

Json = dict[str, Any]

PERSISTENTVOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
SAVES = 'if [ -e /data/saved ]; then line continues; fi; echo "$FC_TASK_INDEX" >>/data/saved; line saves; hold'
RETRIED = {"retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 0}}


async def make_volumes(play: Play, count: int) -> None:
    """Volumes for the claims of the play: there is no storage class that would make them."""
    for number in range(count):
        folder = {"path": str(play.folder / f"volume-{number}"), "type": "DirectoryOrCreate"}
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Mi"},
            "storageClassName": play.namespace,
            "hostPath": folder,
        }
        body = {"metadata": {"name": f"{play.namespace}-{number}"}, "spec": spec}
        await play.client.create(PERSISTENTVOLUMES, orjson.dumps(body))


def role(play: Play, number: int, **retention: str) -> Json:
    """A TaskRole whose containers tell whether an earlier one has written to their volume."""
    container = play.container(
        SAVES, volumeMounts=[{"name": "witness", "mountPath": "/witness"}, {"name": "data", "mountPath": "/data"}]
    )
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
            "storageClassName": play.namespace,
        },
    }
    return {
        **play.role(number=number, script="", task=RETRIED, containers=[container], terminationGracePeriodSeconds=2),
        "volumeClaimTemplates": [claim],
        "persistentVolumeClaimRetentionPolicy": retention,
    }


async def until_claims(play: Play, names: Sequence[str]) -> dict[str, str]:
    """Wait until there are these claims and no others, each with a volume; their UIDs."""

    async def probe() -> dict[str, str]:
        items = (await play.kubectl.json("get", "persistentvolumeclaims"))["items"]
        assert [(one["metadata"]["name"], one["status"]["phase"]) for one in items] == [
            (name, "Bound") for name in names
        ]
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in items}

    return await eventually(probe, within=WITHIN, every=1)


@play()
async def test_a_task_finds_its_data_after_a_retry_and_in_a_later_framework(play: Play) -> None:
    await make_volumes(play, 3)
    await play.create("kept", role(play, 2, whenScaled="Delete"))
    await play.until_said("kept", "saves", 2)
    before = await until_claims(play, ["data-kept-a-0", "data-kept-a-1"])
    await play.frameworks.delete_pod("kept-a-0")
    (continued,) = await play.until_said("kept", "continues")
    assert (continued.pod, continued.task_attempt) == ("kept-a-0", 1)

    await play.frameworks.set("kept", taskRoles__0__taskNumber=1)
    await play.until("kept", lambda status: len(tasks(status)) == 1)
    kept = await until_claims(play, ["data-kept-a-0"])
    assert kept["data-kept-a-0"] == before["data-kept-a-0"]

    # The claim of the Task that left is gone, so one that comes back has another volume.
    await play.frameworks.set("kept", taskRoles__0__taskNumber=2)
    await play.until_said("kept", "saves", 4)
    again = await until_claims(play, ["data-kept-a-0", "data-kept-a-1"])
    assert again["data-kept-a-0"] == before["data-kept-a-0"]
    assert again["data-kept-a-1"] != before["data-kept-a-1"]
    assert len([one for one in play.instances() if one.said("continues")]) == 1

    first = (await play.frameworks.get("kept"))["metadata"]["uid"]
    await play.frameworks.delete("kept")
    await play.until_gone("kept")
    assert await until_claims(play, ["data-kept-a-0", "data-kept-a-1"]) == again
    await play.create("kept", role(play, 2))
    later = (await play.until_said("kept", "continues", 3))[1:]
    assert [(one.pod, one.task_attempt) for one in sorted(later, key=lambda one: one.pod)] == [
        ("kept-a-0", 0),
        ("kept-a-1", 0),
    ]
    assert first not in {one.framework_uid for one in later}
    assert await until_claims(play, ["data-kept-a-0", "data-kept-a-1"]) == again


@play()
async def test_claims_go_with_their_framework_if_it_says_so(play: Play) -> None:
    await make_volumes(play, 2)
    await play.create("gone", role(play, 2, whenDeleted="Delete"))
    await play.until_said("gone", "saves", 2)
    await until_claims(play, ["data-gone-a-0", "data-gone-a-1"])
    await play.frameworks.delete("gone")
    await play.until_gone("gone")
    await until_claims(play, [])

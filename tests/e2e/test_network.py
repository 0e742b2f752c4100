"""Host names, as containers resolve each other's."""

from typing import Any, Final

from tests.e2e.stage import PYTHON, WITHIN, Play, play
from tests.support.frameworks import codes, tasks

Json = dict[str, Any]

SERVES: Final = """
mkdir -p /srv && echo "$FC_POD_NAME $FC_TASK_ATTEMPT_ID" >/srv/index.html
python3 -m http.server 8080 --directory /srv >/dev/null 2>&1 &
"""
"""Serve the name of the Pod, and the number of its attempt."""
ASK: Final = (
    "from sys import argv; from urllib.request import urlopen; print(urlopen(argv[1], timeout=20).read().decode())"
)
UNTIL_OVER: Final = "until [ -e /witness/.over ]; do sleep 1; done"
UNTIL_ASKED: Final = "until [ -e /witness/.asked ]; do sleep 1; done"
READY_WHEN_ASKED: Final[Json] = {
    "exec": {"command": ["test", "-e", "/witness/.asked"]},
    "periodSeconds": 1,
    "timeoutSeconds": 60,
}


def role(play: Play, name: str, number: int, script: str, task: Json | None = None, **container: Any) -> Json:
    """A TaskRole whose containers look up names with glibc, as most do. Busybox has a resolver of its own."""
    return play.role(name, number, script="", task=task, containers=[play.container(script, image=PYTHON, **container)])


def until_answers(host: str, answer: str) -> str:
    return f"""until [ "$(python3 -c '{ASK}' http://{host}:8080/ 2>/dev/null)" = "{answer}" ]; do sleep 1; done"""


def pair(play: Play, name: str, script: str = "", **container: Any) -> Json:
    """Two workers that serve their names and look for each other, with steps before that."""
    other = f"{name}-a-$((1 - FC_TASK_INDEX))"
    script = f"{SERVES}\n{script}\n{until_answers(f'{other}.{name}', f'{other} 0')}\nline found\n{UNTIL_OVER}"
    return role(play, "a", 2, script, **container)


def service_uid(play: Play, name: str) -> str:
    """The Service there is now."""
    uid: str = play.recorder.services(play.namespace)[name]["metadata"]["uid"]
    return uid


def ready_addresses(play: Play, name: str) -> tuple[int, int]:
    """How many addresses the Endpoints of a Service have, and how many of Pods that are not ready."""
    subsets = play.recorder.endpoints(play.namespace).get(name, {}).get("subsets") or []
    ready, others = (
        [one for subset in subsets for one in subset.get(key, ())] for key in ("addresses", "notReadyAddresses")
    )
    return len(ready), len(others)


@play()
async def test_workers_find_each_other_before_they_are_ready(play: Play) -> None:
    """While they are not ready, only a Framework that publishes such names has them."""
    await play.create("meet", pair(play, "meet", readinessProbe=READY_WHEN_ASKED), network={})
    shy = pair(play, "shy", readinessProbe=READY_WHEN_ASKED)
    await play.create("shy", shy, network={"publishNotReadyAddresses": False})
    await play.until_said("meet", "found", 2)
    await play.until_said("shy", "runs", 2)
    await play.recorder.until(lambda: ready_addresses(play, "shy") == (0, 2), within=WITHIN)
    ready = [
        one["status"]
        for pod in play.recorder.pods(play.namespace).values()
        for one in pod["status"]["conditions"]
        if one["type"] == "Ready"
    ]
    assert ready == ["False"] * 4
    assert not any(one.said("found") for one in play.instances("shy"))
    (play.folder / ".asked").touch()
    await play.until_said("shy", "found", 2)
    play.say_over()
    for name in ("meet", "shy"):
        assert codes(tasks(await play.until_completed(name))) == [0, 0]


@play()
async def test_a_name_leads_to_the_next_instance_after_a_retry(play: Play) -> None:
    asker = role(
        play,
        "asker",
        1,
        f"{until_answers('again-server-0.again', 'again-server-0 0')}\nline first\n"
        f"{until_answers('again-server-0.again', 'again-server-0 1')}\nline second",
    )
    retried = {"retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 0}}
    await play.create("again", role(play, "server", 1, f"{SERVES}\nhold", retried), asker, network={})
    await play.until_said("again", "first")
    (before,) = tasks(await play.until_running("again", 2), "server")
    service = service_uid(play, "again")
    await play.frameworks.delete_pod("again-server-0")
    await play.until_said("again", "second")
    status = await play.until("again", lambda status: codes(tasks(status, "asker")) == [0])
    (after,) = tasks(status, "server")
    assert (before["attemptStatus"]["id"], after["attemptStatus"]["id"]) == (0, 1)
    assert before["attemptStatus"]["podIP"] != after["attemptStatus"]["podIP"]
    assert service_uid(play, "again") == service


@play()
async def test_a_service_that_kubectl_deletes_comes_back(play: Play) -> None:
    """Its Pods continue, and find each other again."""
    await play.create("back", pair(play, "back", UNTIL_ASKED), network={})
    before = await play.until_running("back", 2)
    service = service_uid(play, "back")
    await play.kubectl.ok("delete", "service", "back")
    await play.recorder.until(
        lambda: "back" in play.recorder.services(play.namespace) and service_uid(play, "back") != service,
        within=WITHIN,
    )
    (play.folder / ".asked").touch()
    await play.until_said("back", "found", 2)
    play.say_over()
    status = await play.until_completed("back")
    assert codes(tasks(status)) == [0, 0]
    assert [one["instanceUID"] for one in tasks(status)] == [one["instanceUID"] for one in tasks(before)]

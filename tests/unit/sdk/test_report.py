"""`report`, as programs in Pods call it: against an HTTPS server, in processes of their own."""

from __future__ import annotations

import http.server
import json
import os
import pickle
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import frameworkcontroller
from frameworkcontroller import report
from tests.support.certificates import Certificates, make_certificates

RUNNER = Path(frameworkcontroller.__file__).parent / "sdk" / "taskrunner.py"
PATH = "/apis/progress/v1/namespaces/default/frameworks/f/attempts/0"


class Server:
    """Keeps the reports. ``answers``: statuses of the next answers, then 200. ``hangs``: no answer until released."""

    def __init__(self, certificates: Certificates, folder: Path) -> None:
        self.certificates, self.folder = certificates, folder
        self.got: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.requests: list[tuple[str, str, str]] = []
        self.answers: list[int] = []
        self.hangs = threading.Event()
        self.hangs.set()
        (folder / "token").write_text("secret\n")
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificates.pair("server"))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self.hangs.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def variables(self) -> dict[str, str]:
        return {
            "KUBEFLOW_TRAINER_SERVER_URL": f"https://127.0.0.1:{self._server.server_port}{PATH}",
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self.certificates.ca),
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.folder / "token"),
        }


class _Handler(http.server.BaseHTTPRequestHandler):
    owner: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.owner.requests.append((self.path, self.headers["Authorization"], self.headers["Content-Type"]))
        self.owner.hangs.wait(30)
        self.owner.got.append(body["trainerStatus"])
        self.owner.times.append(time.monotonic())
        self.send_response(self.owner.answers.pop(0) if self.owner.answers else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server(certificates: Certificates, tmp_path: Path) -> Iterator[Server]:
    made = Server(certificates, tmp_path)
    yield made
    made.close()


def run(server: Server | None, program: str, *, python: str = sys.executable, **environ: str) -> tuple[float, str]:
    """Run the program as a function of a Pod without the SDK. Return the seconds that it took, and its stderr."""
    folder = server.folder if server is not None else Path(environ.pop("folder"))
    lines = "".join(f"    {line}\n" for line in program.splitlines())
    (folder / "m.py").write_text(f"import os, time\nimport frameworkcontroller as fc\n\ndef f():\n{lines}")
    # Two programs of a second may have the same size.
    variables = {"PYTHONDONTWRITEBYTECODE": "1", **(server.variables if server is not None else {})}
    began = time.monotonic()
    # Isolated: no SDK, and no other package.
    ended = subprocess.run(
        [python, "-S", str(RUNNER), "m:f", '{"args": [], "kwargs": {}}'],
        cwd=folder,
        env={"FC_LOCAL_TERMINATION_LOG": str(folder / "log"), "PATH": os.environ["PATH"], **variables, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return time.monotonic() - began, ended.stderr


def without_times(got: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key != "lastUpdatedTime"} for one in got]


ALL = "fc.report(percent=42.5, step=1200, metrics={'loss': 0.25, 'lr': 3}, checkpoint=True, remaining_seconds=90.7)"
WHOLE = {
    "progressPercentage": 42.5,
    "estimatedRemainingSeconds": 90,
    "step": 1200,
    "metrics": [{"name": "loss", "value": "0.25"}, {"name": "lr", "value": "3.0"}],
    "checkpoint": True,
}


def test_all_fields(server: Server) -> None:
    _, err = run(server, ALL)
    assert (without_times(server.got), err) == ([WHOLE], "")
    assert server.requests == [(PATH, "Bearer secret", "application/json")]
    updated = time.mktime(time.strptime(server.got[0]["lastUpdatedTime"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    assert abs(updated - time.time()) < 60


@pytest.mark.parametrize("python", [f"python3.{minor}" for minor in range(8, 13)])
def test_each_python_here_reports(server: Server, python: str) -> None:
    path = shutil.which(python)
    if path is None or subprocess.run([path, "-V"], capture_output=True, check=False).returncode:
        pytest.skip(f"no {python}")
    # Python 3.13 asks for extensions that the certificates of the tests lack; the product's have them.
    run(server, ALL, python=path)
    assert without_times(server.got) == [WHOLE]


def test_the_newest_values_are_sent_and_the_last_at_the_end(server: Server) -> None:
    took, _ = run(
        server, "for step in range(1, 500):\n    fc.report(step=step)\nfc.report(percent=100)\ntime.sleep(0.5)"
    )
    steps = [one.get("step") for one in server.got]
    assert 1 <= len(steps) <= 2
    assert 499 in steps
    assert server.got[-1]["progressPercentage"] == 100
    assert took < 10


def test_at_most_one_report_every_five_seconds_but_checkpoints_within_one(server: Server) -> None:
    run(
        server,
        "fc.report(step=1)\ntime.sleep(0.5)\nfc.report(step=2, checkpoint=True)\ntime.sleep(2)\n"
        "for step in range(3, 20):\n    fc.report(step=step)\n    time.sleep(0.1)\n",
    )
    assert without_times(server.got)[:2] == [{"step": 1}, {"step": 2, "checkpoint": True}]
    between = [later - sooner for sooner, later in zip(server.times, server.times[1:], strict=False)]
    assert 0.9 < between[0] < 2
    # The last one is at the end of the process.
    assert [one["step"] for one in server.got[2:]] == [19]


@pytest.mark.parametrize("status", [503, 429, 401])
def test_a_refused_checkpoint_is_sent_again(server: Server, status: int) -> None:
    server.answers = [status]
    _, err = run(server, "fc.report(step=1, checkpoint=True)\ntime.sleep(1)\nfc.report(step=2)")
    assert without_times(server.got) == [{"step": 1, "checkpoint": True}, {"step": 2, "checkpoint": True}]
    assert err == f"frameworkcontroller: progress cannot be reported: {status} {http.HTTPStatus(status).phrase}: \n"


@pytest.mark.parametrize("status", [400, 403, 410])
def test_a_report_that_is_refused_permanently_is_not(server: Server, status: int) -> None:
    server.answers = [status]
    run(server, "fc.report(step=1, checkpoint=True)\ntime.sleep(1)\nfc.report(step=2)")
    assert without_times(server.got) == [{"step": 1, "checkpoint": True}, {"step": 2}]


def test_a_server_that_hangs_only_delays_the_end(server: Server) -> None:
    server.hangs.clear()
    program = (
        "began = time.monotonic()\nfor _ in range(100):\n    fc.report(step=1)\nassert time.monotonic() - began < 1"
    )
    took, _ = run(server, program)
    assert took < 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"KUBEFLOW_TRAINER_SERVER_URL": "https://127.0.0.1:9/x"}, "ConnectionRefusedError"),
        ({"KUBEFLOW_TRAINER_SERVER_URL": "http://127.0.0.1/x"}, "must be an https URL"),
        ({"KUBEFLOW_TRAINER_SERVER_URL": "https://127.0.0.1:port/x"}, "ValueError"),
        ({"KUBEFLOW_TRAINER_SERVER_TOKEN": "/nowhere"}, "FileNotFoundError"),
        ({"KUBEFLOW_TRAINER_SERVER_CA_CERT": "/nowhere"}, "FileNotFoundError"),
        ({"KUBEFLOW_TRAINER_SERVER_CA_CERT": "/etc/hostname"}, "SSLError"),
    ],
)
def test_no_failure_ends_a_program(server: Server, changes: dict[str, str], words: str) -> None:
    _, err = run(server, "fc.report(step=1)\nfc.report(step=2)\ntime.sleep(0.5)", **changes)
    assert err.startswith("frameworkcontroller: progress cannot be reported: ")
    assert words in err
    assert err.count("\n") == 1
    assert server.got == []


def test_a_foreign_certificate_is_refused(server: Server, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = make_certificates(tmp_path_factory.mktemp("other"))
    _, err = run(server, "fc.report(step=1)", KUBEFLOW_TRAINER_SERVER_CA_CERT=str(other.ca))
    assert "SSLCertVerificationError" in err
    assert server.requests == []


def test_a_proxy_is_not_asked(server: Server) -> None:
    run(server, "fc.report(step=1)", HTTPS_PROXY="http://127.0.0.1:9", https_proxy="http://127.0.0.1:9")
    assert without_times(server.got) == [{"step": 1}]


def test_of_torchrun_only_rank_0_reports(server: Server) -> None:
    run(server, "fc.report(step=1)", RANK="1")
    assert server.got == []
    run(server, "fc.report(step=2)", RANK="0")
    assert without_times(server.got) == [{"step": 2}]


def test_a_new_token_is_read(server: Server) -> None:
    run(server, "fc.report(step=1)\ntime.sleep(0.5)\nopen('token', 'w').write('new')\nfc.report(step=2)")
    assert [token for _, token, _ in server.requests] == ["Bearer secret", "Bearer new"]


def test_a_fork_reports_itself(server: Server) -> None:
    run(
        server,
        "fc.report(step=1)\ntime.sleep(0.5)\nchild = os.fork()\nif not child:\n    fc.report(step=2)\n"
        "    time.sleep(1)\n    os._exit(0)\nos.waitpid(child, 0)",
    )
    assert without_times(server.got) == [{"step": 1}, {"step": 2}]


def test_outside_a_pod_nothing_happens(tmp_path: Path) -> None:
    took, err = run(None, f"import threading\n{ALL}\nassert threading.active_count() == 1", folder=str(tmp_path))
    assert (took < 5, err) == (True, "")


class _Tensor:
    def __init__(self, value: float | None) -> None:
        self.value = value

    def __float__(self) -> float:
        if self.value is None:
            raise RuntimeError("a tensor with 2 elements")
        return self.value


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"percent": 100.1}, ValueError, "percent: must be from 0 to 100, not 100.1"),
        ({"percent": -1}, ValueError, "percent: must be from 0 to 100, not -1"),
        ({"percent": float("nan")}, ValueError, "percent: must be from 0 to 100, not nan"),
        ({"percent": "42"}, TypeError, "percent: must be a number, not '42'"),
        ({"percent": True}, TypeError, "percent: must be a number, not True"),
        ({"step": 1.5}, TypeError, "step: must be a whole number, not 1.5"),
        ({"step": True}, TypeError, "step: must be a whole number, not True"),
        ({"step": -1}, ValueError, "step: must be from 0 to 9007199254740991, not -1"),
        ({"step": 2**53}, ValueError, "step: must be from 0 to 9007199254740991, not 9007199254740992"),
        ({"remaining_seconds": -0.5}, ValueError, "remaining_seconds: must be from 0 to 9007199254740991, not -0.5"),
        ({"remaining_seconds": float("inf")}, ValueError, "remaining_seconds: must be from 0 to "),
        ({"checkpoint": 1}, TypeError, "checkpoint: must be True or False, not 1"),
        ({"metrics": [1]}, TypeError, "metrics: must be a mapping of names to numbers, not [1]"),
        ({"metrics": {1: 1}}, TypeError, "metrics: 1: a name must be text"),
        ({"metrics": {"": 1}}, ValueError, "metrics: '': a name must have 1 to 63 printable characters"),
        ({"metrics": {"x" * 64: 1}}, ValueError, "a name must have 1 to 63 printable characters"),
        ({"metrics": {"a\n": 1}}, ValueError, "metrics: 'a\\n': a name must have 1 to 63 printable characters"),
        ({"metrics": {"loss": "low"}}, TypeError, "metrics: loss: must be a number, not 'low'"),
        ({"metrics": {"loss": _Tensor(None)}}, TypeError, "metrics: loss: must be a number, not <"),
        ({"metrics": {str(n): n for n in range(21)}}, ValueError, "metrics: must have at most 20 names, not 21"),
    ],
)
def test_a_bad_argument_is_an_error_also_outside_a_pod(arguments: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        report(**arguments)
    assert str(caught.value).startswith(words) or words in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_value_of_nan_is_left_out(server: Server) -> None:
    run(server, "fc.report(step=1, metrics={'loss': float('nan'), 'gap': float('inf'), 'lr': 0.5})")
    assert without_times(server.got) == [{"step": 1, "metrics": [{"name": "lr", "value": "0.5"}]}]


def test_a_tensor_is_a_number(server: Server) -> None:
    program = "class T:\n    def __float__(self): return 0.5\n    def __index__(self): return 7\n"
    run(server, f"{program}fc.report(step=T(), metrics={{'loss': T()}})")
    assert without_times(server.got) == [{"step": 7, "metrics": [{"name": "loss", "value": "0.5"}]}]


def test_a_pickled_function_finds_it() -> None:
    assert report.__module__ == "frameworkcontroller"
    assert pickle.loads(pickle.dumps(report)) is report


def test_a_script_with_the_sdk_reports(server: Server) -> None:
    subprocess.run(
        [sys.executable, "-c", "from frameworkcontroller import report; report(step=3)"],
        env={**os.environ, **server.variables},
        check=True,
        timeout=60,
    )
    assert without_times(server.got) == [{"step": 3}]

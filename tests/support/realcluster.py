"""Real control planes for tests: etcd, kube-apiserver and kube-controller-manager (for its garbage collector).

The three programs come from a folder that `setup-envtest` made, named by KUBEBUILDER_ASSETS, or else from
`../shared/kube/unpack` next to the repository where that exists. They listen on loopback only, keep everything in one
temporary folder, and end with this process however it ends.
"""

import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
CRD: Final = ROOT / "crd" / "frameworks.yaml"

ASSETS: Final = "assets"
VERSIONS: Final = ("1.20", "1.36")
"""The control planes that `../shared/kube` holds."""

USERS: Final = ("controller", "viewer", "stranger")
"""Users besides `admin`; what they may do is for RBAC objects of a test to say. They are there from the start: the
API server reads its tokens only once."""

_PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager")
_UNPACKER: Final = ROOT.parent / "shared" / "kube" / "unpack"
_START_UP_SECONDS: Final = 300
_ATTEMPTS: Final = 3

# Runs a program that the kernel kills together with this process, even if this one is killed with SIGKILL.
_WRAPPER: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


class StartUpFailed(Exception):
    """A control plane did not come up; the text ends with the last output of its programs."""


def find_assets(name: str) -> Path | None:
    """The folder with the programs of the control plane `name`, or None if this machine has none.

    "assets" is the folder in KUBEBUILDER_ASSETS; the others are unpacked, which takes a few seconds once.
    """
    if name == ASSETS:
        folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or os.devnull)
    elif os.access(_UNPACKER, os.X_OK):
        unpacked = subprocess.run([_UNPACKER, name], stdout=subprocess.PIPE, text=True, check=False)
        folder = Path(unpacked.stdout.strip() or os.devnull)
    else:
        return None
    return folder if all(os.access(folder / program, os.X_OK) for program in _PROGRAMS) else None


@dataclass(frozen=True)
class _Ports:
    etcd: int
    peer: int
    api: int
    manager: int

    @classmethod
    def free(cls) -> Self:
        # All four are held at once, so that they differ; they are free again a moment before they are used.
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
            return cls(*(one.getsockname()[1] for one in held))


class ControlPlane:
    """A running control plane. `start` it, use `url` and `token`, `stop` it; or use it as a context manager."""

    def __init__(self, assets: Path, crds: Sequence[Path] = (CRD,), *, api_args: Sequence[str] = ()) -> None:
        """`crds` are installed before the garbage collector starts: it learns of later ones only every 30 s.

        `api_args` are further arguments for kube-apiserver.
        """
        self._assets = assets
        self._crds = crds
        self._api_args = api_args
        self._commands: dict[str, tuple[str, ...]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = Path()
        self.url = ""
        self.etcd_url = ""
        self.tokens: Mapping[str, str] = {}
        self.ca_file = Path()
        self.kubeconfig = Path()

    @property
    def token(self) -> str:
        """The token of `admin`, who may do everything."""
        return self.tokens["admin"]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until it is ready, which takes some seconds. Raises StartUpFailed."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start()
            except StartUpFailed:
                # Mostly another program took one of the free ports in between.
                self.stop()
                if attempt == _ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    def stop(self) -> None:
        """Kill everything and remove its files. Nothing of it is worth an orderly end."""
        for process in reversed(self._processes.values()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()
        if self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = Path()

    def pid(self, program: str) -> int:
        """The process of one of the three programs."""
        return self._processes[program].pid

    def kill(self, program: str) -> None:
        """Kill one of the three programs, as `kill -9` does."""
        process = self._processes[program]
        process.kill()
        process.wait()

    def start_again(self, program: str) -> None:
        """Restart a killed program on its data, without waiting until it is ready.

        To be called in the main thread: the kernel kills a program together with the thread that started it.
        """
        self._spawn(program, *self._commands[program])

    def user_kubeconfig(self, user: str) -> Path:
        """A kubeconfig file for `admin` or one of USERS."""
        path = self._folder / f"kubeconfig-{user}.yaml"
        if not path.exists():
            authority = base64.b64encode(self.ca_file.read_bytes()).decode()
            cluster = {"server": self.url, "certificate-authority-data": authority}
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": user, "user": {"token": self.tokens[user]}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
                "current-context": "test",
            }
            path.write_text(yaml.safe_dump(config))
        return path

    def request(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """One request as admin, for setting things up: returns the decoded answer; raises urllib.error.HTTPError."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content_type},
        )
        context = ssl.create_default_context(cafile=str(self.ca_file))
        with urllib.request.urlopen(request, timeout=120, context=context) as response:
            answer = response.read()
        return json.loads(answer) if answer.startswith((b"{", b"[")) else answer

    def _start(self) -> None:
        folder = self._folder = Path(tempfile.mkdtemp(prefix="control-plane-"))
        ports = _Ports.free()
        self.url = f"https://127.0.0.1:{ports.api}"
        self.etcd_url = f"http://127.0.0.1:{ports.etcd}"
        self.tokens = {user: secrets.token_hex(16) for user in ("admin", *USERS)}
        # A self-signed certificate that the API server makes on its first start, and the authority that signed it.
        self.ca_file = folder / "certs" / "apiserver.crt"
        self._write_credentials(folder)

        self._spawn(
            "etcd", "--data-dir", f"{folder}/etcd", "--unsafe-no-fsync", "--log-level", "error",
            "--listen-client-urls", f"http://127.0.0.1:{ports.etcd}",
            "--advertise-client-urls", f"http://127.0.0.1:{ports.etcd}",
            "--listen-peer-urls", f"http://127.0.0.1:{ports.peer}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{ports.peer}",
            "--initial-cluster", f"default=http://127.0.0.1:{ports.peer}",
        )  # fmt: skip
        self._wait("etcd", lambda: _plain_get(f"{self.etcd_url}/health"))
        self._spawn(
            "kube-apiserver", "--etcd-servers", self.etcd_url,
            "--secure-port", str(ports.api), "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
            "--cert-dir", f"{folder}/certs", "--token-auth-file", f"{folder}/tokens.csv",
            "--authorization-mode", "RBAC",
            "--service-account-key-file", f"{folder}/sa.key", "--service-account-signing-key-file", f"{folder}/sa.key",
            "--service-account-issuer", "https://kubernetes.default.svc", "--service-cluster-ip-range", "10.0.0.0/24",
            "--allow-privileged", "--disable-admission-plugins", "ServiceAccount",
            *self._api_args,
        )  # fmt: skip
        self._wait("kube-apiserver", lambda: self.request("GET", "/readyz"))
        # kube-apiserver writes its certificate before it listens, so it is there by now.
        self.kubeconfig = self.user_kubeconfig("admin")
        for crd in self._crds:
            self._install(yaml.safe_load(crd.read_text()))

        manager = [
            "--kubeconfig", str(self.kubeconfig), "--leader-elect=false",
            "--controllers", "garbagecollector,namespace,pvc-protection",
            "--secure-port", str(ports.manager), "--bind-address", "127.0.0.1", "--cert-dir", f"{folder}/kcm-certs",
            "--kube-api-qps", "2000", "--kube-api-burst", "4000",
        ]  # fmt: skip
        if "--port int" in _help_of(self._assets / "kube-controller-manager"):
            manager += ["--port", "0"]  # where there still is an insecure port, it is a fixed one
        self._spawn("kube-controller-manager", *manager)
        self._wait("kube-controller-manager", lambda: _insecure_get(f"https://127.0.0.1:{ports.manager}/healthz"))

    def _write_credentials(self, folder: Path) -> None:
        rows = [
            f"{token},{user},{user}" + (",system:masters" if user == "admin" else "")
            for user, token in self.tokens.items()
        ]
        (folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        made = subprocess.run(
            ["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"], capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            raise StartUpFailed(f"openssl genrsa: {made.stderr}")

    def _install(self, crd: dict[str, Any]) -> None:
        collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        name = crd["metadata"]["name"]
        self.request("POST", collection, crd)

        def established() -> None:
            now = {"status": {"conditions": None}} | self.request("GET", f"{collection}/{name}")
            conditions = {one["type"]: one for one in now["status"]["conditions"] or []}
            if conditions.get("Established", {}).get("status") != "True":
                raise OSError(f"CRD {name} is not established: {conditions}")

        self._wait(None, established)

    def _spawn(self, program: str, *args: str) -> None:
        self._commands[program] = args
        with (self._folder / f"{program}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", _WRAPPER, str(os.getpid()), str(self._assets / program), *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes[program] = process

    def _wait(self, program: str | None, probe: Any) -> None:
        """Call `probe` until it raises no OSError (urllib's errors are some); give up if a program has ended."""
        deadline = time.monotonic() + _START_UP_SECONDS
        while True:
            try:
                probe()
            except OSError as error:
                ended = [process for process in self._processes.values() if process.poll() is not None]
                if ended or time.monotonic() > deadline:
                    fate = (
                        f"ended with {ended[0].returncode}" if ended else f"not ready in {_START_UP_SECONDS} s: {error}"
                    )
                    raise StartUpFailed(f"{program or 'control plane'} {fate}\n{self.logs()}") from None
                time.sleep(0.1)
            else:
                return

    def logs(self, lines: int = 30) -> str:
        """The last lines that each program wrote."""
        parts = []
        for path in sorted(self._folder.glob("*.log")):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            parts.append(f"--- {path.name}\n" + "\n".join(tail))
        return "\n".join(parts)


def _help_of(program: Path) -> str:
    return subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout


def _plain_get(url: str) -> None:
    urllib.request.urlopen(url, timeout=10).close()


def _insecure_get(url: str) -> None:
    """For a health endpoint with a self-signed certificate; nothing secret is sent."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    urllib.request.urlopen(url, timeout=10, context=context).close()

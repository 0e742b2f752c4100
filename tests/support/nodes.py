"""Real nodes for tests: a cluster of kubelets, containerd and a control plane, from the kit next to the repository.

The kit starts one such cluster on a machine, in namespaces of its own. The cluster ends with this process, also if this
process is killed: a guardian waits for the end of a pipe.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support import images
from tests.support.kubectl import find_kubectl
from tests.support.realcluster import ROOT, find_assets

_KIT: Final = ROOT.parent / "shared" / "kube" / "nodes"
_STATE: Final = Path("/var/tmp/frameworkcontroller-nodes")
"""Known, so that what a killed run has left is found; short, since sockets lie in it."""
_DISCARD: Final = '{ umount "$2" 2>/dev/null || true; rm -rf "$2"; }'
_ENOUGH_MEMORY: Final = 12 << 30
_SHARES: Final = 4096
_ATTEMPTS: Final = 3
"""To start the cluster: the kit gives each of its parts a minute, which is not enough on every busy machine."""
_LINK: Final = Path("/sys/class/net/fcnodes0")
_PROGRAMS: Final = (
    "containerd", "ctr", "runc", "iptables", "conntrack", "ebtables", "ethtool", "socat", "ip", "openssl", "curl", "xz",
    "nsenter", "unshare", "ssh-keygen", "/usr/lib/cni/bridge", "/bin/busybox",
)  # fmt: skip
# Except connections that kube-proxy has marked, such as a Pod's to itself by a Service.
_BETWEEN_PODS: Final = ("-s", "10.244.0.0/16", "-d", "10.244.0.0/16", "-m", "mark", "!", "--mark", "0x4000/0x4000")
_PATH: Final = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_KERNEL: Final = """
set -e
mkdir lower upper work merged
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
ip link add fc-a type veth peer name fc-b
ip link add fc-c type bridge
iptables -t nat -A POSTROUTING -m comment --comment tried -j MASQUERADE
"""


def why_not() -> str | None:
    """Why no such cluster can be started here; None if one can."""
    if os.geteuid() != 0:
        return "nodes take root"
    if not os.access(_KIT / "up", os.X_OK):
        return f"there is no kit for nodes in {os.path.relpath(_KIT, ROOT)}"
    if find_assets("1.20") is None:
        return "there is no control plane of 1.20 for the nodes"
    missing = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if not Path("/sys/fs/cgroup/memory").is_dir():
        return "the nodes' kubelet needs cgroups of version 1"
    if (why := images.why_not()) is not None:
        return why
    if isinstance(kubectl := find_kubectl(), str):
        return kubectl
    return _what_the_kernel_lacks()


def _what_the_kernel_lacks() -> str | None:
    scratch = _STATE.with_name(f"{_STATE.name}-{os.getpid()}")
    scratch.mkdir()
    try:
        tried = subprocess.run(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c", _KERNEL],
            cwd=scratch, env={"PATH": _PATH}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(scratch)
    return None if tried.returncode == 0 else f"namespaces, overlayfs and netfilter are needed: {tried.stderr.strip()}"


class NodesInUse(Exception):
    """Another cluster of nodes is up on this machine."""


class Nodes:
    """A running cluster of nodes: node-1, node-2 and so on."""

    def __init__(self, state: Path, kubeconfig: Path, names: list[str]) -> None:
        self._state = state
        self.kubeconfig = kubeconfig
        self.names = names

    def import_images(self, archive: Path, nodes: Sequence[str] = ()) -> None:
        """Put the images of an archive on these nodes, or on all."""
        running = [
            subprocess.Popen(
                [*self._ctr(node), "images", "import", str(archive)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            for node in nodes or self.names
        ]
        for process in running:
            said, _ = process.communicate()
            assert process.returncode == 0, said.decode()

    def keep_addresses(self) -> None:
        """Show Pods the addresses of Pods on other nodes, as Kubernetes promises and MPI checks: the kit hides them."""
        self._inside("iptables", "-t", "nat", "-I", "POSTROUTING", *_BETWEEN_PODS, "-j", "ACCEPT")

    def kill_container(self, node: str, container_id: str) -> None:
        """End a container as `kill -9` does; `container_id` as Pods have it in their status."""
        _run(*self._ctr(node), "tasks", "kill", "--signal=SIGKILL", container_id.removeprefix("containerd://"))

    def kill_containers(self, node: str) -> None:
        """End every container of the node's Pods, as the machine's loss of power does."""
        listed = _run(*self._ctr(node), "tasks", "list", "--quiet").split()
        for container in listed:
            subprocess.run(
                [*self._ctr(node), "tasks", "kill", "--signal=SIGKILL", container], capture_output=True, check=False
            )

    def kill_kubelet(self, node: str) -> None:
        """End the node's kubelet, if it runs. Its containers run on."""
        self._inside("sh", "-c", f"kill -9 $(cat {self._state}/run/{_kubelet(node)}.pid) || true")

    def start_kubelet(self, node: str) -> None:
        """Start the node's kubelet again."""
        self._inside("sh", "-c", f"setsid {self._state}/run/{_kubelet(node)} </dev/null >/dev/null 2>&1 &")

    def warnings(self, node: str, count: int = 10) -> list[str]:
        """The last errors in the log of the node's kubelet, and its last line."""
        lines = (self._state / "log" / _kubelet(node)).read_text(errors="replace").splitlines()
        return [*[line for line in lines if line[:1] in "EF"][-count:], *lines[-1:]]

    def _ctr(self, node: str) -> list[str]:
        return ["ctr", "--address", f"{self._state}/{node}/containerd.sock", "--namespace", "k8s.io"]

    def _inside(self, *command: str) -> None:
        pid = (self._state / "pid").read_text().strip()
        _run("nsenter", "--target", pid, "--mount", "--net", "--pid", *command)


@contextmanager
def running_nodes(count: int, environment: Mapping[str, str]) -> Iterator[Nodes]:
    """A cluster with this number of nodes, which ends with the context; `environment` is the kit's.

    Raises:
        NodesInUse: one is up already, and it is another process's.
    """
    if _LINK.exists():
        owner = _STATE / "owner"
        if not owner.exists() or _is_alive(int(owner.read_text())):
            raise NodesInUse(
                "a cluster of nodes is up on this machine, and only one can be: see `ip link show fcnodes0`"
            )
        _run(str(_KIT / "down"), str(_STATE))
    _discard()
    _STATE.mkdir()
    if _available_memory() > _ENOUGH_MEMORY:
        # Images are unpacked on every node, and thrown away with it.
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(_STATE))
    (_STATE / "owner").write_text(str(os.getpid()))
    assets = find_assets("1.20")
    assert assets is not None
    # Any end of this process closes the pipe. A session of its own: Ctrl-C is not for the guardian.
    guardian = subprocess.Popen(
        ["sh", "-c", f'cat >/dev/null; "$1" "$2" && {_DISCARD}', "guardian", str(_KIT / "down"), str(_STATE)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        kubeconfig = _start(assets, {"NODES": str(count), **environment})
        for shares in Path("/sys/fs/cgroup/cpu").glob("fc-node-*/cpu.shares"):
            # All Pods of a node would have the share of one process of the machine.
            shares.write_text(str(_SHARES))
        nodes = Nodes(_STATE, kubeconfig, [f"node-{number}" for number in range(1, count + 1)])
        nodes.keep_addresses()
        yield nodes
    finally:
        _, said = guardian.communicate(timeout=600)
        assert guardian.returncode == 0, said.decode()


def _start(assets: Path, environment: Mapping[str, str]) -> Path:
    said = ""
    for _ in range(_ATTEMPTS):
        up = subprocess.run(
            [str(_KIT / "up"), str(assets), str(_STATE)],
            env={**os.environ, "PATH": _PATH, **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if up.returncode == 0:
            return Path(up.stdout.strip())
        said += up.stderr
    raise AssertionError(said)


def _discard() -> None:
    _run("sh", "-c", _DISCARD, "", "", str(_STATE))


def _available_memory() -> int:
    (kibibytes,) = (
        line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:")
    )
    return int(kibibytes) << 10


def _kubelet(node: str) -> str:
    return f"kubelet-{node.removeprefix('node-')}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _run(*command: str) -> str:
    ran = subprocess.run(
        command,
        env={**os.environ, "PATH": _PATH},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{' '.join(command)} ended with {ran.returncode}: {ran.stdout}{ran.stderr}"
    return ran.stdout

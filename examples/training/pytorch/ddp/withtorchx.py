"""Run ddp.py by TorchX on the local cluster: `withtorchx.py PYTHON`, of an environment with PyTorch and TorchX."""

import os
import site
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
FOLDER = Path(__file__).resolve().parent


def main() -> int:
    """Run it, and return TorchX's exit code."""
    programs = Path(sys.argv[1]).parent
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = f"{folder}/kubeconfig"
        variables = os.environ | {
            # Tasks find torchrun here.
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": kubeconfig,
            "HOME": folder,
        }
        up = [sys.executable, "-m", "frameworkcontroller", "local", "up", "--kubeconfig", kubeconfig]
        up += ["--until-stdin-closes"]
        pipe = subprocess.PIPE
        with subprocess.Popen(up, env=variables, stdin=pipe, stdout=pipe, text=True) as cluster:
            assert cluster.stdin is not None
            assert cluster.stdout is not None
            if not any(line.startswith("A cluster runs at ") for line in cluster.stdout):
                return 1
            # TorchX finds the plug-in there: `pip install frameworkcontroller[torchx]` would do the same.
            variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *site.getsitepackages()])
            run = [programs / "torchx", "run", "--scheduler", "frameworkcontroller", "-cfg", "code=ddp.py"]
            run += ["--wait", "--log", "dist.ddp", "-j", "4x1", "--script", "ddp.py"]
            # TorchX writes logs to stderr.
            code = subprocess.run(run, env=variables, cwd=FOLDER, stderr=subprocess.STDOUT, check=False).returncode
            cluster.stdin.close()
            cluster.stdout.read()
    return code


if __name__ == "__main__":
    sys.exit(main())

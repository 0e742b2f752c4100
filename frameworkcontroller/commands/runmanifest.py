"""The Framework that the options of ``run`` describe, made by the SDK's presets."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.problems import Problem
from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import checked_name
from frameworkcontroller.commands.lint.frameworks import check_framework
from frameworkcontroller.sdk import presets
from frameworkcontroller.sdk.definitions import Framework, Progress, Resources, Retry
from frameworkcontroller.sdk.exceptions import FrameworkError, InvalidSpec
from frameworkcontroller.sdk.shippedcode import Code

ARRAY_LABEL: Final = f"{names.GROUP}/array"
"""Label of the Frameworks of an array: the NAME that they have in common."""

ARRAY_INDEX_LABEL: Final = f"{ARRAY_LABEL}-index"
ARRAY_INDEX: Final = "ARRAY_INDEX"
"""Variable of the containers."""

_LAUNCHERS: Final = {"torchrun": "torchrun", "mpirun": "mpi", "mpiexec": "mpi", "spark-submit": "spark"}
"""The presets of the programs that start a command's processes."""

_OPTIONS: Final = {
    "activeDeadlineSeconds": "--deadline",
    "code": "--code",
    "cpu": "--cpu",
    "image": "--image",
    "maxRetryCount": "--retries",
    "memory": "--memory",
    names.PRIORITY_CLASS: "--priority",
    names.QUEUE_NAME: "--queue",
    "taskNumber": "--nodes",
    "ttlSecondsAfterFinished": "--ttl",
}
"""The options of fields, by the last part of their path."""

_SPARK_RESERVED: Final = 1024
"""MiB of a container's memory that a Spark worker leaves to itself and the system, as by default."""


class Builder:
    """Makes the Framework of the options, or each one of its array."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Check the options and read the code. Raises UsageError."""
        self.options = options
        _check(options)
        self.words = _words(options)
        try:
            self.code = Code.files(*options.code) if options.code else None
        except InvalidSpec as error:
            raise refused(error) from None

    def build(self, index: int | None = None) -> Framework:
        """Return the Framework, or of an array the one with that index. Raises UsageError."""
        try:
            return self._made(self._options(index))
        except InvalidSpec as error:
            raise refused(error) from None

    def check(self, framework: Framework) -> list[str]:
        """Return likely mistakes. Raises UsageError if the controller or the API server would refuse it."""
        options = self.options
        found: list[str] = []
        try:
            body = framework.to_dict()
        except InvalidSpec as error:
            raise refused(error) from None
        for finding in check_framework(body):
            if finding.severity == "error":
                raise program.UsageError(_named(finding.problem))
            found.append(f"warning: {finding.problem}")
        preset = _LAUNCHERS.get(self.words[0]) if self.words else None
        if options.preset is None and preset is not None and options.tasks > 1:
            found.append(
                f"warning: each of the {options.tasks} Tasks starts a {self.words[0]} of its own; --preset {preset} "
                "joins them"
            )
        return found

    def _options(self, index: int | None) -> presets.Options:
        options = self.options
        env = dict(options.env)
        found: presets.Options = {
            "resources": Resources(cpu=options.cpu, memory=options.memory, gpus=options.gpus),
            "retry": Retry(options.retries),
            "gang": options.gang,
        }
        if options.name is not None:
            found["name"] = options.name if index is None else f"{options.name}{index}"
        if options.progress:
            found["progress"] = Progress()
        if index is not None:
            env[ARRAY_INDEX] = str(index)
            found["labels"] = {ARRAY_LABEL: options.name, ARRAY_INDEX_LABEL: str(index)}
        found["env"] = env
        if options.image is not None:
            found["image"] = options.image
        if options.queue is not None:
            found["queue"] = options.queue
        if options.priority is not None:
            found["priority"] = options.priority
        if options.deadline is not None:
            found["deadline"] = math.ceil(options.deadline)
        if options.ttl is not None:
            found["ttl"] = math.ceil(options.ttl)
        if self.code is not None:
            found["code"] = self.code
        return found

    def _made(self, given: presets.Options) -> Framework:
        words, tasks, gpus = self.words, self.options.tasks, self.options.gpus
        match self.options.preset:
            case "torchrun":
                return presets.torchrun(words[0], args=words[1:], nodes=tasks, gpus_per_node=gpus, **given)
            case "distributed":
                return presets.distributed(words, nodes=tasks, gpus_per_node=gpus, **given)
            case "jax":
                return presets.jax(words, nodes=tasks, gpus_per_node=gpus, **given)
            case "tensorflow":
                return presets.tensorflow(words, workers=tasks, **given)
            case "mpi":
                return presets.mpi(words, workers=tasks, slots=gpus or 1, **given)
            case "ray":
                return presets.ray(words, workers=tasks, gpus_per_worker=gpus, **given)
            case "spark":
                cores, memory = _spark_worker(self.options)
                return presets.spark(words, workers=tasks, cores=cores, memory=memory, **given)
        return presets.command(words, tasks=tasks, **given)


def refused(error: FrameworkError) -> program.CommandError:
    """Return the error of the command, which names the options of wrong fields."""
    if isinstance(error, InvalidSpec):
        return program.UsageError("\n".join(map(_named, error.problems)))
    return program.CommandError(str(error))


def _named(problem: Problem) -> str:
    last = str(problem.path[-1]) if problem.path else ""
    option = _OPTIONS.get(last) or _OPTIONS.get(last.rpartition(".")[2])
    return str(problem if option is None else replace(problem, path=(option,)))


def _check(options: argparse.Namespace) -> None:
    if options.name is not None:
        checked_name(options.name)
    if options.array is not None:
        if options.name is None:
            raise program.UsageError("--array: needs a NAME, which its Frameworks have in common")
        if options.follow:
            raise program.UsageError("--array: -f follows one Framework; --wait waits for all")
        checked_name(f"{options.name}{options.array[-1]}")
    elif options.at_most is not None:
        raise program.UsageError("--at-most: is for --array")
    if options.dry_run and (options.follow or options.wait):
        raise program.UsageError(f"--dry-run: runs nothing that {'-f' if options.follow else '--wait'} could wait for")
    if options.output is not None and not options.dry_run:
        raise program.UsageError("-o: is for --dry-run")


def _words(options: argparse.Namespace) -> Sequence[str]:
    """Return the command, without the launcher that the preset starts."""
    words: list[str] = options.words
    preset = options.preset
    if preset is not None and words and _LAUNCHERS.get(words[0]) == preset:
        words = words[1:]
    if not words and (preset is not None or options.image is None):
        raise program.UsageError("no command is given: -- COMMAND [ARGUMENT ...]")
    if preset == "torchrun" and words[0].rpartition("/")[2].startswith("python"):
        raise program.UsageError(f"--preset torchrun: {words[0]!r}: give the script; torchrun starts Python")
    return words


def _spark_worker(options: argparse.Namespace) -> tuple[int, str]:
    """Return the cores of a worker, and its memory in Spark's words."""
    cores = 1 if options.cpu is None else max(int(parse_quantity(options.cpu)), 1)
    if options.memory is None:
        return cores, "1g"
    return cores, f"{max(int(parse_quantity(options.memory)) // 2**20 - _SPARK_RESERVED, _SPARK_RESERVED)}m"


def place(options: argparse.Namespace) -> str:
    """Return the options that name the cluster and the namespace, for a further command."""
    given = {"-n": options.namespace, "--context": options.context, "--kubeconfig": options.kubeconfig}
    return "".join(f" {option} {shlex.quote(str(value))}" for option, value in given.items() if value is not None)

"""Runs many Pods on Kubernetes as one job, a Framework, with retries, completion rules and rescaling.

The names of the SDK (docs/python.md) are in this package. Each is imported when it is first used, so that importing the
package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frameworkcontroller import aio as aio
    from frameworkcontroller.api.problems import Problem as Problem
    from frameworkcontroller.api.status import Phase as Phase
    from frameworkcontroller.sdk.definitions import Claim as Claim
    from frameworkcontroller.sdk.definitions import Completion as Completion
    from frameworkcontroller.sdk.definitions import Framework as Framework
    from frameworkcontroller.sdk.definitions import Progress as Progress
    from frameworkcontroller.sdk.definitions import Resources as Resources
    from frameworkcontroller.sdk.definitions import Retry as Retry
    from frameworkcontroller.sdk.definitions import Role as Role
    from frameworkcontroller.sdk.exceptions import AlreadyExists as AlreadyExists
    from frameworkcontroller.sdk.exceptions import Forbidden as Forbidden
    from frameworkcontroller.sdk.exceptions import FrameworkError as FrameworkError
    from frameworkcontroller.sdk.exceptions import FrameworkFailed as FrameworkFailed
    from frameworkcontroller.sdk.exceptions import InvalidSpec as InvalidSpec
    from frameworkcontroller.sdk.exceptions import LogUnavailable as LogUnavailable
    from frameworkcontroller.sdk.exceptions import NotFound as NotFound
    from frameworkcontroller.sdk.exceptions import RemoteError as RemoteError
    from frameworkcontroller.sdk.exceptions import RequestRefused as RequestRefused
    from frameworkcontroller.sdk.exceptions import Unreachable as Unreachable
    from frameworkcontroller.sdk.exceptions import WaitTimeout as WaitTimeout
    from frameworkcontroller.sdk.presets import command as command
    from frameworkcontroller.sdk.presets import distributed as distributed
    from frameworkcontroller.sdk.presets import function as function
    from frameworkcontroller.sdk.presets import jax as jax
    from frameworkcontroller.sdk.presets import mpi as mpi
    from frameworkcontroller.sdk.presets import ray as ray
    from frameworkcontroller.sdk.presets import spark as spark
    from frameworkcontroller.sdk.presets import tensorflow as tensorflow
    from frameworkcontroller.sdk.presets import torchrun as torchrun
    from frameworkcontroller.sdk.runstatus import Attempt as Attempt
    from frameworkcontroller.sdk.runstatus import LogLine as LogLine
    from frameworkcontroller.sdk.runstatus import ProgressStatus as ProgressStatus
    from frameworkcontroller.sdk.runstatus import Result as Result
    from frameworkcontroller.sdk.runstatus import RoleStatus as RoleStatus
    from frameworkcontroller.sdk.runstatus import Status as Status
    from frameworkcontroller.sdk.runstatus import TaskFailure as TaskFailure
    from frameworkcontroller.sdk.runstatus import TaskStatus as TaskStatus
    from frameworkcontroller.sdk.shippedcode import Code as Code
    from frameworkcontroller.sdk.syncclient import Cluster as Cluster
    from frameworkcontroller.sdk.syncclient import Run as Run
    from frameworkcontroller.sdk.syncclient import connect as connect
    from frameworkcontroller.sdk.syncclient import local as local
    from frameworkcontroller.sdk.taskrunner import notice as notice
    from frameworkcontroller.sdk.taskrunner import report as report

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    from importlib import import_module

    from frameworkcontroller.sdk import find

    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = import_module(f"{__name__}.aio") if name == "aio" else find(name)
    return value


def __dir__() -> list[str]:
    from frameworkcontroller.sdk import PLACES

    return sorted({*globals(), *PLACES})

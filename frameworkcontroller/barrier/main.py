"""frameworkbarrier: wait until every Task of a Framework has an IP address, and write the addresses to files.

Run it as an init container of the Framework's Pods. Once every Task of the spec has a Pod with an IP, it writes these
files into the working directory and exits 0. Roles that depend on the Pod's own, or have not started, do not count.

  framework.json   the Framework; its task role statuses are uncompressed
  injector.sh      a shell script to source; for each TaskRole, in upper case, it exports and prints
                     FB_{ROLE}_IPS        the IPs of the Tasks, ordered by index, separated by commas
                     FB_{ROLE}_ADDRESSES  the same with :${FB_{ROLE}_PORT} after each IP; set the port before
                     FB_COORDINATOR_IP    the IP of spec.coordinator, if there is one
  hostfile         only with BARRIER_HOSTFILE_ROLES: an IP a line, as mpirun --hostfile reads it

Exit codes, which are the completion codes of the Pod's Task:

    0   every Task has an IP, and each awaited name resolves
  201   timeout: some Task has no IP, or some name does not resolve; the Framework should release its resources and
        retry later
  210   there is no such Framework, or a setting is wrong; a retry is useless
    1   no API server is configured, or its credentials cannot be used; the working directory is not writable; or the
        Framework could not be read until the timeout

Environment:

  FC_FRAMEWORK_NAMESPACE, FC_FRAMEWORK_NAME    the Framework; every container of it has both
  FC_TASKROLE_NAME                             if set, the role of the Pod
  FC_FRAMEWORK_UID                             if set, the UID that the Framework must have
  FC_FRAMEWORK_ATTEMPT_INSTANCE_UID            if set, the attempt that the Framework must be in
  BARRIER_CHECK_INTERVAL_SEC                   default 10, at least 5
  BARRIER_CHECK_TIMEOUT_SEC                    default 600, from 60 to 1200
  BARRIER_WAIT_FOR_NAME                        HOST[,HOST...]: after the IPs, wait until these names resolve, too
  BARRIER_HOSTFILE_ROLES                       ROLE[,ROLE...]: write a hostfile of their Tasks, in order of index
  BARRIER_HOSTFILE_SLOTS                       write slots=N after each IP of the hostfile
  KUBECONFIG, KUBE_APISERVER_ADDRESS           the API server; the default is the Pod's service account, which needs
                                               permission to `get` Frameworks

This file needs Python 3.7 or newer and nothing else: copy it into any image.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from frameworkcontroller.barrier.apiserver import connect
from frameworkcontroller.barrier.exits import EXIT_PASSED, EXIT_REFUSED, BarrierError
from frameworkcontroller.barrier.files import check_writable, write_files
from frameworkcontroller.barrier.frameworkreader import Reader
from frameworkcontroller.barrier.settings import Settings
from frameworkcontroller.barrier.waiting import Barrier

_log = logging.getLogger("frameworkbarrier")


def run(environ: Mapping[str, str], directory: Path) -> int:
    """Wait, and write the files into ``directory``. Returns the exit code."""
    try:
        settings = Settings(environ)
        server = connect(environ)
        check_writable(directory)
        _log.info(
            "waiting up to %d s for the Tasks of Framework %s/%s, looking at %s every %d s",
            settings.timeout,
            settings.namespace,
            settings.name,
            server.address,
            settings.interval,
        )
        framework, ips = Barrier(Reader(server, settings), settings).wait()
        write_files(directory, framework, ips, settings)
        resolved = ", and all names resolve" if settings.awaited_names else ""
        _log.info("passed: all %d Tasks have an IP%s", sum(map(len, ips.values())), resolved)
        return EXIT_PASSED
    except BarrierError as error:
        _log.error("%s", error)
        return error.code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, whose only option is --help. Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments) in (["-h"], ["--help"]):
        sys.stdout.write(__doc__ or "")
        return EXIT_PASSED
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%Y-%m-%dT%H:%M:%SZ"
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        # The first process of a container ignores signals without a handler.
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    if arguments:
        _log.error("no arguments are taken, only the environment: see --help")
        return EXIT_REFUSED
    return run(os.environ, Path())

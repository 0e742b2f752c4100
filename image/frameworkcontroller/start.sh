#!/bin/sh
# Runs the controller with the frameworkcontroller.yaml next to this file.
set -eu
cd "$(dirname "$0")"
exec /opt/frameworkcontroller/venv/bin/frameworkcontroller "$@"

#!/bin/sh
# Runs the barrier where the Pod's other containers look for its files: /mnt/frameworkbarrier, be it a volume or not.
set -eu
barrier=$(cd "$(dirname "$0")" && pwd)/frameworkbarrier
mkdir -p /mnt/frameworkbarrier
cd /mnt/frameworkbarrier
exec "$barrier" "$@"

#!/bin/sh
# Runs the barrier in /mnt/frameworkbarrier (a volume or not), where the Pod's other containers look for its files.
set -eu
barrier=$(cd "$(dirname "$0")" && pwd)/frameworkbarrier
mkdir -p /mnt/frameworkbarrier
cd /mnt/frameworkbarrier
exec "$barrier" "$@"

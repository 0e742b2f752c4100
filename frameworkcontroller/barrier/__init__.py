"""The init container that waits until every Task of its Framework has an IP address (docs/barrier.md).

This package runs on Python 3.7 with the standard library and PyYAML: scripts/build-barrier bundles it, and it runs in
other images.
"""

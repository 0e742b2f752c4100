"""Reading kubeconfigs, for the controller, its commands and the barrier.

This package runs on Python 3.7 with the standard library and PyYAML: scripts/build-barrier bundles it.
"""

"""Runs many Pods on Kubernetes as one job, a Framework, with retries, completion rules and rescaling."""

__version__ = "0.1.0"

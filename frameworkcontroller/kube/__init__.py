"""Talking to a Kubernetes API server: requests, watches and caches."""

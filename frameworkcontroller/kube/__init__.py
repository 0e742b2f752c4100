"""Talking to a Kubernetes API server: connections, requests, watches and caches.

This package knows objects, verbs and resourceVersions; it knows nothing of Frameworks, and decides nothing about them.
"""

"""A Kubernetes client: connections, requests, watches, caches, work queues and leader election.

It knows nothing of Frameworks.
"""

"""Joins decisions and I/O: routing, queueing and syncing of Frameworks."""

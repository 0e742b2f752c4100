"""A scheduler and Pod runtimes that drive Pods as a client of any API server."""

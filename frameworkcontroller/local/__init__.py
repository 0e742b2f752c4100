"""A cluster in one process: an API server and a Pod runtime on loopback, for trials and tests."""

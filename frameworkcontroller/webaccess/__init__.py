"""Decides who may see web pages and the archive: on loopback by the kernel, elsewhere by the API server."""

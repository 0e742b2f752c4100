"""The running controller: its wiring, metrics, health checks and web server."""

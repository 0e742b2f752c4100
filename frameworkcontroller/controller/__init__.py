"""Reconciles Frameworks: event handlers, workers, syncs, requests, Events and snapshots."""

"""Versions of the archive's schema."""

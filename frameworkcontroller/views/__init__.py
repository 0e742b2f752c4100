"""Frameworks as people see them, for commands and pages: states, reasons, summaries, trees, timelines and Events."""

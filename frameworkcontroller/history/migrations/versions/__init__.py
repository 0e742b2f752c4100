"""The versions, each a step from the one before. A step that is released never changes."""

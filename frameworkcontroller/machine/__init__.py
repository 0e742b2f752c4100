"""The decisions on Frameworks, without I/O."""

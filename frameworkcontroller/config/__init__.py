"""The configuration: its keys, bounds and defaults, and the file that it is read from."""

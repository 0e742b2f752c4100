"""Frameworks below the interfaces of other tools. Each module needs the extra of its name."""

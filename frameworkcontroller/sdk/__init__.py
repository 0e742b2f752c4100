"""The SDK for Python. Its names are those of the package ``frameworkcontroller``, and for asyncio of ``aio``."""

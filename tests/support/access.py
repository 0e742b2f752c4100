"""Access without tokens, for tests of something else."""

from aiohttp import web

from frameworkcontroller.webaccess.access import Viewer
from frameworkcontroller.webaccess.loopback_access import LoopbackAccess


class Everyone(LoopbackAccess):
    """Admits every request to loopback to everything."""

    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        return await super().identify(request, self.token)

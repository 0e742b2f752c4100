"""Access without tokens, for tests of something else."""

from aiohttp import web

from frameworkcontroller.webaccess.loopback_access import LoopbackAccess
from frameworkcontroller.webaccess.viewers import Viewer


class Everyone(LoopbackAccess):
    """Admits every request to loopback to everything."""

    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        return await super().identify(request, self.token)

"""The API resources of this project."""

from __future__ import annotations

from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.kube.resources import Resource

FRAMEWORKS: Final = Resource(names.GROUP, names.VERSION, names.PLURAL, names.KIND)

ROLE_SCALERS: Final = Resource(names.GROUP, names.VERSION, "frameworkrolescalers", "FrameworkRoleScaler")

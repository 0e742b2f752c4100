"""``python -m frameworkcontroller``: the same as the command ``frameworkcontroller``."""

import sys

from frameworkcontroller.cli import main

sys.exit(main())

"""``python -m frameworkcontroller``: the same as the command ``frameworkcontroller``."""

import sys

from frameworkcontroller.cli.main import main

sys.exit(main())

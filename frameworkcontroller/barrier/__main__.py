"""``python -m frameworkcontroller.barrier``, and the entry point of the file that scripts/build-barrier makes."""

import sys

from frameworkcontroller.barrier.main import main

if __name__ == "__main__":
    sys.exit(main())

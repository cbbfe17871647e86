"""`python -m monitoring.dashboards`: write the dashboards' JSON.

With `--check`, write nothing, print the stale files, and exit with 1 if there are any.
"""

import argparse
import sys
from collections.abc import Sequence

from monitoring.dashboards import BUILT, stale, write


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m monitoring.dashboards")
    parser.add_argument(
        "--check",
        action="store_true",
        help="write no file; list stale files, and exit with 1 if there are any",
    )
    if not parser.parse_args(arguments).check:
        write()
        return 0
    names = stale()
    for name in names:
        print(
            f"{BUILT / name}: this dashboard differs from its source; run `make dashboards`",
            file=sys.stderr,
        )
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())

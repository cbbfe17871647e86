"""`python -m monitoring.dashboards` writes the dashboards' JSON.

With `--check` it writes nothing, names the files that are stale, and ends with 1 if there are any.
"""

import argparse
import sys

from monitoring.dashboards import BUILT, rendered, stale


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m monitoring.dashboards")
    parser.add_argument("--check", action="store_true", help="only say which files are stale")
    names = stale()
    if parser.parse_args().check:
        for name in names:
            print(f"{BUILT / name}: stale: run `make dashboards`", file=sys.stderr)
        return 1 if names else 0
    wanted = rendered()
    for name in names:
        if name in wanted:
            (BUILT / name).write_text(wanted[name])
        else:
            (BUILT / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python3 -m agents.slurm token --user NAME [--lifetime SECONDS] [--key FILE]`: print a token.

This is for operators. Users get their tokens with `scontrol token`.
"""

import argparse
import sys
from pathlib import Path

from agents.slurm.tokens import DEFAULT_KEY, LIFETIME, make_token


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="agents.slurm")
    token = parser.add_subparsers(required=True).add_parser("token", help="print a token")
    token.add_argument("--user", required=True, help="user of the token")
    token.add_argument("--lifetime", type=int, default=LIFETIME, help="lifetime in seconds")
    token.add_argument("--key", type=Path, default=DEFAULT_KEY, help="file with slurmctld's key")
    options = parser.parse_args(arguments)
    try:
        key = options.key.read_bytes()
    except OSError as error:
        print(
            f"--key {options.key}: {error.strerror}; set --key to the file with slurmctld's key",
            file=sys.stderr,
        )
        return 1
    print(make_token(key, options.user, options.lifetime))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

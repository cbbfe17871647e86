"""`python3 -m agents.slurm token --user NAME [--lifetime SECONDS] [--key FILE]`: print a token.

This command is for operators. Users get their tokens with `scontrol token`.
"""

import argparse
import sys
from pathlib import Path

from agents.slurm.tokens import DEFAULT_KEY, LIFETIME, make_token


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="agents.slurm")
    token = parser.add_subparsers(required=True).add_parser(
        "token", help="print a token for slurmrestd"
    )
    token.add_argument(
        "--user", required=True, help="name of the user whose rights the token gives"
    )
    token.add_argument(
        "--lifetime",
        type=int,
        default=LIFETIME,
        help="number of seconds for which the token is valid",
    )
    token.add_argument(
        "--key",
        type=Path,
        default=DEFAULT_KEY,
        help="file with slurmctld's key, which signs the token",
    )
    options = parser.parse_args(arguments)
    try:
        key = options.key.read_bytes()
    except OSError as error:
        print(
            f"--key {options.key}: cannot read this file: {error.strerror}; set --key to the "
            "file with slurmctld's key",
            file=sys.stderr,
        )
        return 1
    print(make_token(key, options.user, options.lifetime))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

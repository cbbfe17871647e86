"""`slurm-image`: manage the image cache of a user."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from agents.containers.cache import Cache, size_of
from agents.containers.counts import report_failure
from agents.containers.errors import ImageError
from agents.containers.faults import FAULTS, describe
from agents.containers.importer import Importer
from agents.containers.save import save
from agents.containers.settings import read
from agents.containers.watch import size, tell


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="slurm-image",
        description="Manage your cache of the images that the option --container-image imports.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    find = commands.add_parser(
        "find", help="import an image unless the cache has it, and print its directory in the cache"
    )
    find.add_argument("image", help="image in the form of --container-image")
    share = commands.add_parser(
        "share", help="add the layers of an image to the shared layers of this site"
    )
    share.add_argument("image", help="image in the form of --container-image")
    commands.add_parser("list", help="list the images in the cache")
    remove = commands.add_parser(
        "remove", help="remove images from the cache, the least recently used first"
    )
    remove.add_argument(
        "--keep",
        type=float,
        default=0,
        help="size in GB that may stay in the cache (default: 0; images in use always stay)",
    )
    saving = commands.add_parser("save", help="save a job's container as a squashfs file")
    saving.add_argument(
        "--container", type=Path, required=True, help="directory of the container to save"
    )
    saving.add_argument("target", type=Path, help="path of the new squashfs file")
    return parser.parse_args(arguments)


def _find(importer: Importer, image: str) -> Path:
    try:
        return importer.find(image)
    except (ImageError, *FAULTS):
        report_failure()
        raise


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    os.umask(0o022)
    try:
        if options.command == "save":
            tell(save(options.container, options.target))
            return 0
        settings = read()
        cache = Cache(settings.cache_path(), settings.above_caches())
        if options.command == "find":
            print(_find(Importer(cache, settings, os.environ), options.image))
        elif options.command == "share":
            print(Importer(cache, settings, os.environ).share(options.image))
        elif options.command == "list":
            for image in sorted(cache.images()):
                print(f"{image.name[:12]}  {size(size_of(image)):>10}")
        else:
            freed = cache.shrink(int(options.keep * 1e9))
            print(f"{size(freed)} removed")
    except ImageError as error:
        tell(str(error))
        return 1
    except FAULTS as error:
        subject = options.image if "image" in options else f"slurm-image {options.command}"
        tell(
            f"{subject}: {describe(error)}: check that the image is intact, and that the disk has "
            "free space"
        )
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

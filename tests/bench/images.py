"""Measure jobs in images: starts from the cache, pulls without a cache, reads of small files.

Two nodes and a registry with TLS run in containers. The variants of a measurement alternate in
random order, so that other load on the machine affects all variants equally.
"""

import base64
import os
import statistics

from components import conventions as c
from tests.bench.figures import Figures, say, take_turns
from tests.bench.jail import quartile
from tests.support import ociimages
from tests.support.containers import containers, put
from tests.support.imagesite import Site, image_site, volume
from tests.support.ociimages import Entry, layer

ROUNDS = 20
PULLS = 3
LAYERS = 4
LAYER = 256_000_000
"""Bytes of each layer; compression saves a quarter."""
FILES = 20_000
READS = 5
HOME = "/home/researcher"
TIME = "s=${{EPOCHREALTIME/./}}; {command}; e=${{EPOCHREALTIME/./}}; echo $((e - s))"
"""Bash code that prints the duration of a command in microseconds."""


def measure(figures: Figures) -> None:
    say("images: starting jobs, pulling images and reading files")
    with volume() as jail, containers("slurmstack-bench") as start, image_site(start, jail) as site:
        site.give_password("researcher")
        starts(figures, site)
        pulls(figures, site)
        reads(figures, site)


def timed(site: Site, command: str) -> int:
    file = f"{c.JAIL}{HOME}/timed"
    put(site.node.worker.container, {file: TIME.format(command=command)})
    return int(site.node.user(f"bash {file}").splitlines()[-1])


def starts(figures: Figures, site: Site) -> None:
    name = site.push("bench/small:1", ociimages.layout([site.base]))
    in_image = f"srun --quiet --container-image={name} true"
    site.node.user(in_image)
    times = take_turns(
        {
            "without": lambda: timed(site, "srun --quiet true"),
            "with": lambda: timed(site, in_image),
        },
        ROUNDS,
    )
    without = quartile(times["without"])
    figures.add("srun without an image, in ms", without / 1000)
    ratio = quartile(times["with"]) / without
    figures.add("srun, ratio in a cached image/without an image", ratio, at_most=1.3)


def pulls(figures: Figures, site: Site) -> None:
    text = [base64.b64encode(os.urandom(LAYER * 3 // 4)) for _ in range(LAYERS)]
    layers = [layer([Entry(f"file{n}", each)]) for n, each in enumerate(text)]
    name = site.push("bench/large:1", ociimages.layout([site.base, *layers]))
    del text, layers
    folder = f"{HOME}/by-hand"
    # Give skopeo the credentials here, because only slurm-image reads enroot's credentials file.
    login = "reader:open sesame"
    by_hand = (
        f"srun --quiet bash -c \"skopeo copy --quiet --src-creds '{login}' docker://{name} "
        f"oci:{folder}/layout:image && umoci unpack --rootless --image {folder}/layout:image "
        f'{folder}/bundle >/dev/null"'
    )

    def clean() -> None:
        site.node.root(f"rm -rf {c.JAIL}{folder} {c.JAIL}{HOME}/.cache/slurmstack")
        site.node.user(f"mkdir {c.JAIL}{folder}")

    def pull(command: str) -> int:
        clean()
        return timed(site, command)

    times = take_turns(
        {
            "by hand": lambda: pull(by_hand),
            "srun": lambda: pull(f"srun --quiet --container-image={name} true 2>/dev/null"),
        },
        PULLS,
    )
    clean()
    plain = statistics.median(times["by hand"])
    figures.add("skopeo copy and umoci unpack of 1 GB", plain / 1e6)
    ratio = statistics.median(times["srun"]) / plain
    figures.add("cold srun in that image, ratio to skopeo and umoci", ratio, at_most=1.5)


def reads(figures: Figures, site: Site) -> None:
    files = [Entry(f"many/{n % 200}/{n}", "x" * (n % 8000)) for n in range(FILES)]
    name = site.push("bench/many:1", ociimages.layout([site.base, layer(files)]))
    site.node.user(f"srun --quiet --container-image={name} cp -r /many {HOME}/many")
    # This runs in the jail or the image: use a shell and tools that both have.
    read = "find {place} -type f -exec cat {{}} +"

    def took(options: str, place: str) -> int:
        command = TIME.format(command=f"{read.format(place=place)} >/dev/null")
        put(site.node.worker.container, {f"{c.JAIL}{HOME}/read": command})
        return int(site.node.user(f"srun --quiet {options} bash {HOME}/read"))

    times = take_turns(
        {
            "in the jail": lambda: took("", f"{HOME}/many"),
            "in the image": lambda: took(f"--container-image={name}", "/many"),
        },
        READS,
    )
    plain = quartile(times["in the jail"])
    figures.add(f"reading {FILES} small files in the jail, in ms", plain / 1000)
    ratio = quartile(times["in the image"]) / plain
    figures.add("reading small files, ratio in an image/in the jail", ratio, at_most=1.1)

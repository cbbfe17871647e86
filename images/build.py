"""Build the container images of a stack, and push them to a registry or load them into the nodes.

`python -m images.build [--stack dev] [--image NAME …] [--build-only] [--json]`

An image's tag depends on the image's content (`images.tags`). So this program skips an image whose
tag already exists. After an interrupted build, the next run continues with the first unfinished
step.
"""

import argparse
import io
import json
import os
import re
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import docker
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from components.conventions import DOMAIN
from components.settings import LocalCluster, Settings, SettingsError, read_stack
from images import digests, tags
from local import host
from local import images as local_images
from local.containers import Engine
from local.debian import BASE_IMAGE, ensure_base_image
from local.errors import LocalError
from local.paths import CACHE, LOCK, locked

LABEL = f"{DOMAIN}/image"
"""Label that marks images of this project. Its value is the image's name."""
BUILDS_AT_ONCE = 2
SILENCE = 1800
"""Seconds without output after which a request to Docker times out."""
OLD = 30
"""Age of Debian's packages in days. If they are older, the output suggests `make snapshot`."""
KEPT_LINES = 40
"""Number of output lines to show of a failed step."""
STEP = re.compile(r"Step (\d+/\d+) : (.*)", re.DOTALL)
EXIT_CODE = re.compile(r"returned a non-zero code: (\d+)$")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NOTES = ("---> ", "Removing intermediate container ")
# Docker predefines these build arguments, and does not store them in the image.
PROXIES = ("http_proxy", "https_proxy", "no_proxy")

Say = Callable[[str], None]


class BuildError(Exception):
    """An image cannot be built, pushed or loaded. `output` is what the failed step printed."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


@dataclass(frozen=True)
class Result:
    """One image after the run. `seconds` is the duration of its build, or 0 if it was not built."""

    name: str
    reference: str
    built: bool
    seconds: float


class Report:
    """Shows the progress on stderr. A terminal gets lines that change; a file or pipe gets one line
    per step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()
        self._live = Progress(
            SpinnerColumn(),
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
            ),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def line(self, text: str, style: str = "") -> None:
        """Print a line that stays on the terminal."""
        elapsed = f"[{time.monotonic() - self._start:6.1f} s] "
        self._live.console.print(Text(elapsed + text, style=style), soft_wrap=True)

    @contextmanager
    def doing(self, name: str) -> Iterator[Say]:
        """Yield a function that shows the progress of `name` during the context."""
        if not self._console.is_terminal:
            yield lambda text: self.line(f"{name}: {shorten(text, 100)}")
            return
        task = self._live.add_task(name, total=None)
        try:
            yield lambda text: self._live.update(
                task, description=f"{name}: {shorten(text, 200)}", refresh=True
            )
        finally:
            self._live.remove_task(task)
            self._live.refresh()


def shorten(text: str, width: int) -> str:
    """Return the text on one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


# --- Inputs of a build ---------------------------------------------------------------------------


def context(name: str) -> bytes:
    """Return the image's build context as a reproducible tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for archive_name, path in tags.context_files(name).items():
            content = path.read_bytes()
            member = tarfile.TarInfo(archive_name)
            member.size = len(content)
            member.mode = 0o755 if tags.is_executable(path) else 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def build_arguments(
    name: str, registry: str | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the build arguments of an image: its parent image, and the proxies of this machine."""
    spellings = (spelling for proxy in PROXIES for spelling in (proxy, proxy.upper()))
    proxies = {key: environment[key] for key in spellings if environment.get(key)}
    parent = tags.find(name).parent
    base = {"BASE": tags.reference(parent, registry)} if parent else {}
    return proxies | base


def needed(settings: Settings) -> list[str]:
    """Return the images that the stack's pods run."""
    unused = {
        *([] if settings.directory else ["directory"]),
        *([] if settings.jail.server else ["nfs"]),
    }
    return [name for name in tags.IMAGES if name not in unused]


def closure(names: Iterable[str]) -> list[str]:
    """Return the images and all their ancestors without duplicates, parents first."""
    return list(dict.fromkeys(member for name in names for member in tags.lineage(name)))


def references(settings: Settings) -> list[str]:
    """Return the references of all images that the stack needs, with their ancestors."""
    return [tags.reference(name, settings.registry) for name in closure(needed(settings))]


def age(snapshot: datetime, now: datetime) -> tuple[str, str]:
    """Return a line about the age of Debian's packages in the images, and the line's colour."""
    days = (now - snapshot).days
    text = f"Debian packages of the images: as of {snapshot:%Y-%m-%d}, {days} days ago"
    if days <= OLD:
        return text, ""
    return f"{text}: run `make snapshot` to use today's packages, with security updates", "yellow"


# --- Docker --------------------------------------------------------------------------------------


def connect(say: Say) -> docker.DockerClient:
    """Start Docker if needed, and return a client. Raises LocalError with the remedy."""
    client = host.connect()
    if client is None:
        with locked(LOCK, say):
            client = host.engine(say)
    client.api.timeout = SILENCE
    return client


def reason(error: BaseException) -> str:
    """Return the innermost cause of an error, because Docker's client wraps it in vague errors."""
    if isinstance(error, APIError):
        return shorten(error.explanation or str(error), 300)
    while isinstance(inner := error.__cause__ or error.__context__, Exception):
        error = inner
    return shorten(getattr(error, "strerror", None) or str(error), 300)


def published(client: docker.DockerClient, reference: str) -> str | None:
    """Return the image's digest in the registry.

    Returns None if the registry does not have the image, or denies access.
    """
    try:
        return str(client.images.get_registry_data(reference).id)
    except APIError:
        return None


def build(client: docker.DockerClient, name: str, registry: str | None, say: Say) -> None:
    """Build and tag one image, unless another run has just built it.

    Raises BuildError with the failing step's output.
    """
    reference = tags.reference(name, registry)
    with locked(CACHE / f"build-{name}.lock", say):
        if not host.has_image(client, reference):
            _build(client, name, registry, reference, say)


def _build(
    client: docker.DockerClient, name: str, registry: str | None, reference: str, say: Say
) -> None:
    # Use the host's network, because Docker's own network often does not work behind firewalls and
    # in virtual machines.
    messages = client.api.build(
        fileobj=io.BytesIO(context(name)),
        custom_context=True,
        tag=reference,
        rm=True,
        forcerm=True,
        buildargs=build_arguments(name, registry, os.environ),
        labels={LABEL: name},
        network_mode="host",
        timeout=SILENCE,
        decode=True,
    )
    follow(name, messages, say)


def follow(name: str, messages: Iterable[dict[str, Any]], say: Say) -> None:
    """Read all messages of a build. Raises BuildError if a message reports an error."""
    step = "before the first step"
    output = ""
    for message in messages:
        if "error" in message:
            failed = EXIT_CODE.search(message["error"])
            problem = (
                f"the command of this step ended with exit code {failed[1]}"
                if failed
                else message["error"]
            )
            raise BuildError(
                f"image {name!r}, {shorten(step, 120)}: {shorten(problem, 300)}", printed(output)
            )
        text = message.get("stream") or ""
        if found := STEP.match(text):
            step, output = f"step {found[1]} {found[2].strip()}", ""
            say(step)
        else:
            output += text


def printed(output: str) -> str:
    """Return the last lines of a step's own output, without colours and Docker's notes."""
    lines = (line.rstrip() for line in COLOUR.sub("", output).splitlines())
    kept = [line for line in lines if line and not line.lstrip().startswith(NOTES)]
    return "\n".join(kept[-KEPT_LINES:])


def push(client: docker.DockerClient, reference: str, say: Say) -> None:
    """Push one image with the credentials in Docker's configuration. Raises BuildError."""
    say("push")
    for message in client.api.push(reference, stream=True, decode=True):
        if "error" in message:
            raise BuildError(
                f"cannot push the image {reference}: {shorten(message['error'], 300)}; check "
                "the setting 'registry' in the stack file, and log in to the registry with "
                "`docker login`"
            )


def share(client: docker.DockerClient, references: Iterable[str], report: Report) -> dict[str, str]:
    """Push images that are not in the registry. Return the digests of all images, by reference."""
    found = {}
    for reference in references:
        digest = published(client, reference)
        if digest is None and host.has_image(client, reference):
            with report.doing(reference) as say:
                push(client, reference, say)
            digest = published(client, reference)
        if digest:
            found[reference] = digest
    return found


def pin(found: Mapping[str, str], *, keep: bool, root: Path = tags.ROOT) -> str:
    """Compare the registry's digests with the recorded digests, and record new digests.

    If `keep` is true, record nothing. Returns a text for the summary. Raises BuildError if the
    registry has a different image under a recorded tag.
    """
    if differing := digests.differing(found, root):
        raise BuildError("\n".join(differing))
    if keep or not digests.write(found, root):
        return ""
    return f"; added the new digests to {digests.FILE}: commit this file"


# --- The run -------------------------------------------------------------------------------------


def build_missing(
    client: docker.DockerClient, names: Sequence[str], registry: str | None, report: Report
) -> list[Result]:
    """Build the images that neither Docker nor the registry has.

    `names` lists a parent image before its children. If a build fails, this function raises the
    error and starts no further builds.
    """
    references = {name: tags.reference(name, registry) for name in names}
    missing = [
        name
        for name, reference in references.items()
        if not host.has_image(client, reference) and not (registry and published(client, reference))
    ]
    if any(tags.find(name).parent is None for name in missing):
        with report.doing(BASE_IMAGE) as say:
            ensure_base_image(client, say)

    def run(name: str, parent: Future[Result] | None) -> Result:
        if parent is not None:
            parent.result()
        start = time.monotonic()
        with report.doing(name) as say:
            build(client, name, registry, say)
        seconds = time.monotonic() - start
        report.line(f"image {name}: built {references[name]} in {seconds:.1f} s", "green")
        return Result(name, references[name], True, round(seconds, 1))

    # Run two builds in parallel, because downloads take half of a build's time. Submit parents
    # first: a child waits for its parent, and two waiting children would leave no thread for the
    # parent.
    pool = ThreadPoolExecutor(BUILDS_AT_ONCE)
    futures: dict[str, Future[Result]] = {}
    try:
        for name in missing:
            parent = tags.find(name).parent
            futures[name] = pool.submit(run, name, futures.get(parent) if parent else None)
        for future in as_completed(futures.values()):
            future.result()
    except BaseException as error:
        # Wait for running builds, so that the error is the last printed line. Do not wait after
        # Ctrl-C.
        pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
        raise
    pool.shutdown()
    return [
        futures[name].result() if name in futures else Result(name, references[name], False, 0.0)
        for name in names
    ]


def hand_on(
    client: docker.DockerClient,
    stack: str,
    settings: Settings,
    results: Sequence[Result],
    report: Report,
    *,
    keep_digests: bool,
) -> str:
    """Push the images or load them into the nodes. Return where they are, for the summary."""
    if settings.registry:
        found = share(client, [result.reference for result in results], report)
        return f"in {settings.registry}{pin(found, keep=keep_digests)}"
    if isinstance(settings.cluster, LocalCluster):
        if not Engine(client, stack).running():
            return f"the nodes of the stack {stack!r} load the images when they start"
        with report.doing("load") as say:
            local_images.load(client, stack, [result.reference for result in results], say)
        return f"loaded into the nodes of the stack {stack!r}"
    raise BuildError(
        f"stack {stack!r}: 'slurmstack:registry' is not set, but the nodes are not local and "
        "can pull images only from a registry: set it in the stack file, or pass --build-only"
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command. Return 0 if every image was built, and pushed or loaded if requested."""
    parser = argparse.ArgumentParser(prog="python -m images.build", description=__doc__)
    parser.add_argument(
        "--stack", default="dev", help="name of the stack whose images to build (default: dev)"
    )
    parser.add_argument(
        "--image",
        action="append",
        metavar="NAME",
        help=(
            "name of an image to build, with its parents; may be repeated (default: all images "
            "of the stack)"
        ),
    )
    parser.add_argument(
        "--build-only",
        action="store_true",
        help="only build the images, and do not push or load them",
    )
    parser.add_argument("--json", action="store_true", help="print the built images as JSON")
    parser.add_argument(
        "--keep-digests",
        action="store_true",
        help=f"do not write the digests of new images to {digests.FILE}",
    )
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    try:
        results = _run(options, Report(console))
    except BuildError as error:
        if error.output:
            console.print(error.output, style="dim", markup=False, highlight=False, soft_wrap=True)
        return _fail(console, str(error))
    except (SettingsError, tags.ContextError, LocalError) as error:
        return _fail(console, str(error))
    except (DockerException, RequestException) as error:
        return _fail(
            console, f"a request to Docker failed: {reason(error)}; check that Docker runs"
        )
    except KeyboardInterrupt:
        console.print("interrupted; run this command again to continue the builds")
        sys.stdout.flush()
        # Do not wait for the builds' threads: Docker cancels builds when the connection closes.
        os._exit(130)
    if options.json:
        table = {r.name: {"reference": r.reference, "built": r.built, "seconds": r.seconds}
                 for r in results}  # fmt: skip
        print(json.dumps(table, indent=2, sort_keys=True))
    return 0


def _run(options: argparse.Namespace, report: Report) -> list[Result]:
    settings = read_stack(options.stack, tags.ROOT)
    names = closure(options.image or needed(settings))
    for name in names:  # to report missing files before the first build
        tags.context_files(name)
    with report:
        with report.doing("Docker") as say:
            client = connect(say)
        results = build_missing(client, names, settings.registry, report)
        report.line(*age(tags.snapshot(), datetime.now(UTC)))
        built = sum(result.built for result in results)
        summary = f"images: {built} built, {len(results) - built} already built before"
        if not options.build_only:
            where = hand_on(
                *(client, options.stack, settings, results, report),
                keep_digests=options.keep_digests,
            )
            summary += f"; {where}"
        report.line(summary)
    return results


def _fail(console: Console, message: str) -> int:
    console.print(f"error: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

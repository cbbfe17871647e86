"""Import an image from a registry, a file or a directory into the cache."""

import hashlib
import json
import os
import pwd
import re
import shutil
import tarfile
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from agents.containers import bundle, counts, credentials, surroundings
from agents.containers.cache import Cache, check_files, count_files, remove, settle
from agents.containers.errors import ImageError
from agents.containers.faults import FAULTS, describe
from agents.containers.reference import InFile, InRegistry, parse
from agents.containers.settings import Settings
from agents.containers.surroundings import Surroundings
from agents.containers.watch import Progress, run, size, tell

_SQUASHFS: Final = b"hsqs"
_LAYOUT: Final = "oci-layout"
_ARCHIVES: Final = {_LAYOUT: "oci-archive", "manifest.json": "docker-archive"}
"""Kind of an archive, by the name of a file in the archive. Recent Docker archives contain both
files, so the file that comes first in the archive determines the kind."""
_DENIED: Final = (
    "denied",
    "unauthorized",
    "manifest unknown",
    "not found",
    "authentication required",
    "no image for",
)
"""Words in the error of a registry that refuses access or does not have the image. After such an
error, the importer does not use the cached image."""
_NO_INSTANCE: Final = "no image found in"
"""Words in skopeo's error if an image index has no image for this node's platform. An index is a
list of images, one for each platform."""
_PLATFORM: Final = "linux/amd64"
_NAME: Final = re.compile(r"[\w.-]+")
"""Pattern for an operating system, architecture or variant in an index."""
_COUNT: Final = 30.0
"""Minimum seconds between two counts of the unpacked files. If a count takes more than 3 s, the
pause is ten times as long as the count."""
_YES: Final = ("y", "yes", "true", "1")
_ANSWER: Final = "60s"
"""Time limit for a registry's answer about an image, because skopeo itself has no time limit."""
_LOOK_UP_AGAIN: Final = 300
"""Seconds for which steps use a cached image without asking a registry that did not answer."""
_DEVICE: Final = re.compile(r"create_inode: could not create (character|block) device .*")
"""Error of unsquashfs about a device, which only root can create. The importer ignores this error,
because containers have the job's /dev."""


@dataclass(frozen=True)
class Importer:
    """Imports images into one cache."""

    cache: Cache
    settings: Settings
    environment: Mapping[str, str]

    def find(self, text: str) -> Path:
        """Return the directory of an image, and import the image if necessary.

        `text` is the value of `--container-image`. Raises ImageError.
        """
        reference = parse(text)
        if isinstance(reference, InFile):
            return self._of_file(text, reference)
        self.settings.check_allowed(str(reference))
        try:
            with self.cache.temporary() as folder:
                skopeo = _Skopeo.of_registry(reference, self, folder)
                try:
                    found = skopeo.inspect()
                except ImageError as error:
                    return self._fall_back(text, error)
                return self._of_source(text, found, skopeo)
        except OSError as error:
            return self._fall_back(text, self._unusable(f"image {text}", error))

    def share(self, text: str) -> Path:
        """Add an image's layers to the site's shared layers, and return the site's directory.

        Raises ImageError if the site has no directory, or if this user cannot write to it.
        """
        reference, blobs = parse(text), self.settings.site_blobs()
        if blobs is None:
            raise ImageError(
                "the site has no directory for shared layers: set containers.site_cache in the"
                " stack's settings"
            )
        if isinstance(reference, InFile):
            raise ImageError(
                f"image {text}: only an image in a registry can be shared: push the image to a "
                "registry first"
            )
        try:
            (blobs / "sha256").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ImageError(
                f"cannot write to {blobs}, the directory for shared layers: {error.strerror}: run "
                "this command as the owner of this directory"
            ) from None
        with self.cache.temporary() as folder:
            skopeo = _Skopeo.of_registry(reference, self, folder)
            skopeo.copy(blobs, folder, skopeo.inspect())
        return blobs

    # --- Kinds -----------------------------------------------------------------------------------

    def _of_file(self, text: str, reference: InFile) -> Path:
        # In skopeo's references, the name of the image follows the path after a colon.
        in_skopeo = reference.kind not in ("path", "bundle")
        path = Path(reference.path.partition(":")[0] if in_skopeo else reference.path)
        try:
            real = path.resolve(strict=True)
            kind = _kind_of(real) if reference.kind == "path" else reference.kind
        except OSError as error:
            raise ImageError(f"image {text}: {error.strerror}: check the path") from None
        if kind == "directory":
            return self._of_directory(real)
        if kind == "bundle":
            return self._of_bundle(real)
        if kind == "squashfs":
            return self._of_squashfs(text, real)
        if kind == "oci":
            _check_blobs(real)
        with self.cache.temporary() as folder:
            source = f"{kind}:{reference.path if reference.kind != 'path' else real}"
            skopeo = _Skopeo(str(reference), source, folder)
            found = skopeo.inspect()
            # The owner of the file can replace the file after skopeo.inspect, so the unpacked image
            # may have another digest. Add the file's path to the key: otherwise the cache could use
            # this unpacked image for an image of a registry.
            key = _hash(f"{found.key} {kind} {real}")
            return self._of_source(text, replace(found, key=key), skopeo)

    def _of_source(self, text: str, found: "_Found", skopeo: "_Skopeo") -> Path:
        def make(folder: Path) -> Surroundings:
            site = self.settings.site_blobs()
            if site is not None:
                self.cache.link(site, found.layers)
            try:
                return self._unpack(found, skopeo, folder)
            except ImageError:
                layers = (folder / "blobs").read_text() if (folder / "blobs").exists() else ""
                if not self.cache.remove_damaged(layers.splitlines()):
                    raise
            tell(
                f"{skopeo.subject}: a layer in the cache is damaged: no action needed: "
                "downloading this layer again"
            )
            return self._unpack(found, skopeo, folder)

        image = self._bring(found.key, skopeo.subject, make)
        try:
            self.cache.record(text, found.key, self.settings.fresh_for)
        except OSError as error:
            # Only report the error. Without a record, the next step looks the image up again.
            tell(str(self._unusable(skopeo.subject, error)))
        return image

    def _unpack(self, found: "_Found", skopeo: "_Skopeo", folder: Path) -> Surroundings:
        """Copy an image's layers into the cache, and unpack the image into `folder`."""
        layout = skopeo.copy(self.cache.path / "blobs", folder, found)
        try:
            _describe(layout)
            shutil.copyfile(layout / "layers", folder / "blobs")
            _unpack(skopeo.subject, layout, folder / "root", self.settings.image_size)
            return _surroundings_of(skopeo.subject, layout)
        finally:
            shutil.rmtree(layout)

    def _of_squashfs(self, text: str, path: Path) -> Path:
        def make(folder: Path) -> Surroundings:
            root = folder / "root"
            command = ["unsquashfs", "-no-progress", "-no-xattrs", "-d", str(root), str(path)]
            subject = f"image {text}"
            limit = _limit(subject, self.settings.image_size, root)
            run(command, subject=subject, written=limit, harmless=_DEVICE)
            return surroundings.of_files(root)

        status = path.stat()
        identity = f"{path} {status.st_ino} {status.st_size} {status.st_mtime_ns}"
        return self._bring(_hash(identity), f"image {text}", make)

    def _of_directory(self, path: Path) -> Path:
        """Use the directory itself, without a copy, because containers write to their own layer."""

        def make(folder: Path) -> Surroundings:
            (folder / "root").symlink_to(path)
            return surroundings.of_files(path)

        image = self._bring(_hash(str(path)), f"image {path}", make)
        # If the image was already cached, the user may have changed its variables since then.
        surroundings.of_files(path).write(image)
        return image

    def _of_bundle(self, path: Path) -> Path:
        """Use a bundle's root without a copy, with the bundle's mounts."""
        found = bundle.read(path)

        def make(folder: Path) -> Surroundings:
            (folder / "root").symlink_to(found.root)
            return found.surroundings

        image = self._bring(_hash(f"{path} {found.root}"), f"bundle {path}", make)
        # If the bundle was already cached, the user may have changed its configuration since then.
        found.surroundings.write(image)
        surroundings.replace(image / "mounts", found.mounts.encode())
        surroundings.replace(image / "access", b"ro" if found.read_only else b"rw")
        return image

    # --- Into the cache --------------------------------------------------------------------------

    def _bring(self, key: str, subject: str, make: Callable[[Path], Surroundings]) -> Path:
        with self.cache.locked(key, subject):
            cached = self.cache.image(key)
            if cached is not None:
                counts.report_hit()
                return cached
            began, blobs = time.monotonic(), self.cache.blobs()
            try:
                with self.cache.temporary() as folder:
                    make(folder).write(folder)
                    root = folder / "root"
                    used = 0 if root.is_symlink() else settle(root, subject)
                    (folder / "size").write_text(str(used))
                    (folder / "lock").touch()
                    image = self.cache.add(key, folder)
            except OSError as error:
                raise self._unusable(subject, error) from None
            if not (image / "root").is_symlink():
                counts.report_pull(self.cache.size_of_new(image, blobs), time.monotonic() - began)
            try:
                self.cache.shrink(self.settings.cache_size, keep=image)
            except (OSError, RecursionError) as error:
                tell(
                    f"{subject}: cannot remove old images from your cache: {describe(error)}: "
                    "remove images with `slurm-image remove`"
                )
            return image

    def _unusable(self, subject: str, error: OSError) -> ImageError:
        return ImageError(
            f"{subject}: {describe(error)}: check the free space of {self.cache.path}"
        )

    def _fall_back(self, text: str, error: ImageError) -> Path:
        """Return the cached image if the registry is unavailable. Otherwise raise the error."""
        cached = self.cache.recorded(text)
        if cached is None or any(word in str(error).lower() for word in _DENIED):
            raise error
        tell(f"{error}: continuing with the image in the cache, which may be older")
        # Record the image, because each step would otherwise wait for the registry again. Ignore
        # a failure to write the record, because the step can run without it.
        with suppress(OSError):
            self.cache.record(text, cached.name, min(_LOOK_UP_AGAIN, self.settings.fresh_for))
        counts.report_hit()
        return cached


# --- Files ---------------------------------------------------------------------------------------


def _kind_of(path: Path) -> str:
    """Return the image's kind: squashfs, directory, or the name of a transport in skopeo.

    Raises OSError and ImageError.
    """
    if path.is_dir():
        return "oci" if (path / _LAYOUT).is_file() else "directory"
    if not path.is_file():
        raise ImageError(f"image {path}: expected a file or a directory: check the path")
    with path.open("rb") as file:
        start = file.read(len(_SQUASHFS))
    if start == _SQUASHFS:
        return "squashfs"
    try:
        kind = _kind_of_archive(path)
    except FAULTS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ImageError(
            f"image {path}: {describe(error)}: the archive is damaged or incomplete: copy it again"
        ) from None
    if kind is not None:
        return kind
    raise ImageError(
        f"image {path}: expected a squashfs file, an OCI layout or archive, a `docker save` "
        "archive, or a directory with a root file system"
    )


def _check_blobs(layout: Path) -> None:
    """Refuse an OCI layout that contains FIFOs or devices. skopeo would read from them forever."""
    for path in (layout / "blobs").rglob("*"):
        if not path.is_file() and not path.is_dir():
            raise ImageError(
                f"image {layout}: {path}: expected a file, but it is a FIFO or a device: copy the "
                "image again"
            )


def _kind_of_archive(path: Path) -> str | None:
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            # Stop at the first match, because the rest of the archive may have gigabytes.
            for member in archive:
                if member.name.removeprefix("./") in _ARCHIVES:
                    return _ARCHIVES[member.name.removeprefix("./")]
    return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _limit(subject: str, limit: int, root: Path) -> Callable[[int], None]:
    """Return a callback that reports progress, and raises ImageError if an image is too large.

    An image is too large if it has more than `limit` bytes, or more than MOST_FILES files in
    `root`.
    """
    progress = Progress(f"{subject}: unpacking")
    next_count = time.monotonic() + _COUNT

    def check(count: int) -> None:
        if count > limit:
            raise ImageError(
                f"{subject}: the files of the image exceed {size(limit)}, the limit of this "
                "site: use a smaller image, or contact the cluster operator"
            )
        progress.reached(count)
        nonlocal next_count
        began = time.monotonic()
        if began >= next_count:
            check_files(count_files(root), subject)
            # A count may be slow, so make sure that all counts take at most a tenth of the time.
            ended = time.monotonic()
            next_count = ended + max(_COUNT, 10 * (ended - began))

    return check


# --- skopeo and umoci ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """Properties of an image, as its registry or file reports them."""

    key: str
    """Key in the cache."""
    digest: str
    sizes: Mapping[str, int | None]
    """Sizes of the compressed layers in bytes, or None if unknown. The keys are the layers' digests
    without the algorithm."""

    @property
    def layers(self) -> Collection[str]:
        return self.sizes.keys()

    def size_without(self, blobs: Path) -> int | None:
        """Return the size in bytes of the layers that are not in `blobs`, or None if unknown."""
        total = 0
        for digest, count in self.sizes.items():
            if (blobs / "sha256" / digest).exists():
                continue
            if count is None:
                return None
            total += count
        return total


@dataclass(frozen=True)
class _Skopeo:
    """Runs skopeo for one image."""

    subject: str
    source: str
    folder: Path
    """Directory for temporary files."""
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Global options, for every command of skopeo."""

    @classmethod
    def of_registry(cls, image: InRegistry, importer: Importer, folder: Path) -> "_Skopeo":
        settings, environment = importer.settings, importer.environment
        home, site = Path(pwd.getpwuid(os.getuid()).pw_dir), settings.credentials()
        entries = {
            each.registry: found
            for each in (image, *settings.mirrors_of(image))
            if (found := credentials.find(each, home, site, environment)) is not None
        }
        arguments: tuple[str, ...] = (
            ("--authfile", str(credentials.write(folder, entries))) if entries else ("--no-creds",)
        )
        if environment.get("ENROOT_ALLOW_HTTP", "").lower() in _YES:
            arguments += ("--tls-verify=false",)
        return cls(f"image {image}", image.source(), folder, arguments, settings.of_skopeo())

    def _run(self, command: list[str], written: Callable[[int], None] = lambda count: None) -> str:
        base = ["skopeo", "--insecure-policy", *self.options]
        return run([*base, *command], subject=self.subject, written=written)

    def inspect(self) -> _Found:
        """Return the image's digest and the sizes of its layers, as the source reports them."""
        in_registry = self.source.startswith("docker://")
        limit = ("--command-timeout", _ANSWER) if in_registry else ()
        look = [*limit, "inspect", "--no-tags", *self.arguments]
        try:
            text = self._run([*look, self.source])
        except ImageError as error:
            if _NO_INSTANCE not in str(error):
                raise
            others = _platforms(json.loads(self._run([*look, "--raw", self.source])))
            raise ImageError(
                f"{self.subject}: no image for {_PLATFORM} (available: {', '.join(others)}): "
                f"choose another tag, or build the image for {_PLATFORM}"
            ) from None
        found: dict[str, Any] = json.loads(text)
        sizes = {
            str(layer.get("Digest")).rpartition(":")[2]: _count(layer.get("Size"))
            for layer in found.get("LayersData") or []
        }
        digest = str(found["Digest"])
        return _Found(_hash(f"{digest} {found.get('Architecture')}"), digest, sizes)

    def copy(self, blobs: Path, folder: Path, found: _Found) -> Path:
        """Copy the image into an OCI layout whose layers are in `blobs`."""
        room, total = shutil.disk_usage(blobs).free, found.size_without(blobs)
        if total is not None and total > room:
            raise ImageError(
                f"{self.subject}: the download requires {size(total)}, but {blobs} has only "
                f"{size(room)} left: remove images with `slurm-image remove`, or remove other files"
            )
        layout = folder / "layout"
        layout.mkdir()
        (layout / "blobs").symlink_to(blobs)
        progress = Progress(f"{self.subject}: downloading", total)
        arguments = [
            f"--src-{each[2:]}" if each.startswith("--") else each for each in self.arguments
        ]
        source = self.source
        if source.startswith("docker://") and "@" not in source:
            source = f"{source.rpartition(':')[0]}@{found.digest}"
        self._run(
            [
                "copy",
                *arguments,
                "--dest-shared-blob-dir",
                str(blobs),
                source,
                f"oci:{layout}:image",
            ],
            written=progress.reached,
        )
        return layout


def _platforms(index: Mapping[str, Any]) -> list[str]:
    """Return the platforms of the images in an index, such as linux/arm64/v8."""
    keys = ("os", "architecture", "variant")
    found = (each.get("platform", {}) for each in index["manifests"])
    parts = [[platform[key] for key in keys if platform.get(key)] for platform in found]
    # Leave out the platform unknown/unknown, because it stands for a signature and not an image.
    known = ["/".join(each) for each in parts if each and all(map(_NAME.fullmatch, each))]
    return sorted({platform for platform in known if "unknown" not in platform}) or ["none"]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _describe(layout: Path) -> None:
    """Write the digests of the blobs to `layers`, and the image's configuration to `config`."""
    index = json.loads((layout / "index.json").read_text())
    manifest_digest = str(index["manifests"][0]["digest"])
    manifest = _blob(layout, manifest_digest)
    parts = json.loads(manifest.read_text())
    names = [
        manifest_digest,
        parts["config"]["digest"],
        *(one["digest"] for one in parts["layers"]),
    ]
    (layout / "layers").write_text("".join(f"{name.partition(':')[2]}\n" for name in names))
    shutil.copyfile(_blob(layout, parts["config"]["digest"]), layout / "config")


def _surroundings_of(subject: str, layout: Path) -> Surroundings:
    try:
        return surroundings.of_config(json.loads((layout / "config").read_text()))
    except ImageError as error:
        raise ImageError(f"{subject}: {error}") from None


def _blob(layout: Path, digest: str) -> Path:
    algorithm, _, name = digest.partition(":")
    return layout / "blobs" / algorithm / name


def _unpack(subject: str, layout: Path, root: Path, limit: int) -> None:
    bundle = layout.parent / "bundle"
    command = ["umoci", "unpack", "--rootless", "--image", f"{layout}:image", str(bundle)]
    try:
        run(command, subject=subject, written=_limit(subject, limit, bundle))
        (bundle / "rootfs").rename(root)
    finally:
        # Ignore errors, because Cache.temporary removes the files that remain.
        with suppress(OSError, RecursionError):
            remove(bundle)

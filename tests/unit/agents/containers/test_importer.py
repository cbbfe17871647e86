"""Imports of images, with stand-ins for skopeo and umoci."""

import errno
import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

from agents.containers import cache, watch
from agents.containers import importer as importer_module
from agents.containers.cache import Cache
from agents.containers.errors import ImageError
from agents.containers.importer import Importer
from agents.containers.settings import Settings

COMMON = f"""#!{sys.executable} -SI
import hashlib, json, sys
from pathlib import Path

FOLDER = Path(__file__).parent
words = sys.argv[1:]

def digest_of(raw):
    return "sha256:" + hashlib.sha256(raw).hexdigest()

def blob(folder, digest):
    return Path(folder, *digest.split(":"))
"""
SKOPEO = f"""{COMMON}
command = "inspect" if "inspect" in words else "copy"
source = words[-1] if command == "inspect" else words[-2]
kind, _, path = source.partition(":")
said = json.loads((FOLDER / "registry.json" if kind == "docker" else Path(path)).read_text())
layers = [text.encode() for text in said.get(command, said["layers"])]
config = json.dumps(said.get("config", {{}})).encode()
manifest = json.dumps({{
    "config": {{"digest": digest_of(config)}},
    "layers": [{{"digest": digest_of(layer)}} for layer in layers],
}}).encode()
if "index" in said and "--raw" in words:
    print(json.dumps({{"manifests": said["index"]}}))
elif "index" in said:
    sys.exit("no image found in image index for architecture amd64")
elif command == "inspect":
    data = [{{"Digest": digest_of(layer), "Size": len(layer)}} for layer in layers]
    found = {{"Digest": digest_of(manifest), "Architecture": "amd64", "LayersData": data}}
    print(json.dumps(found))
else:
    blobs, layout = words[words.index("--dest-shared-blob-dir") + 1], Path(words[-1].split(":")[1])
    for raw in (config, manifest, *layers):
        file = blob(blobs, digest_of(raw))
        if not file.exists():
            file.write_bytes(raw)
    index = {{"manifests": [{{"digest": digest_of(manifest)}}]}}
    (layout / "index.json").write_text(json.dumps(index))
"""
"""Script that replaces skopeo. It reads images from JSON files that contain the layers. Like
skopeo, the script reuses a blob in the cache without reading the blob."""
UMOCI = f"""{COMMON}
layout, root = Path(words[-2].partition(":")[0]), Path(words[-1], "rootfs")
root.mkdir(parents=True)
index = json.loads((layout / "index.json").read_text())
manifest = json.loads(blob(layout / "blobs", index["manifests"][0]["digest"]).read_text())
for number, layer in enumerate(manifest["layers"]):
    raw = blob(layout / "blobs", layer["digest"]).read_bytes()
    if digest_of(raw) != layer["digest"]:
        sys.exit("digest mismatch")
    (root / str(number)).write_bytes(raw)
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, text in (("skopeo", SKOPEO), ("umoci", UMOCI)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def importer(tmp_path: Path, programs: Path) -> Importer:
    settings = Settings(folder=tmp_path / "settings", site_cache=str(tmp_path / "site"))
    return Importer(Cache(tmp_path / "cache"), settings, {})


def push(programs: Path, *layers: str, **more: object) -> None:
    """Put an image into the registry."""
    (programs / "registry.json").write_text(json.dumps({"layers": layers} | more))


def contents(image: Path) -> list[str]:
    return [path.read_text() for path in sorted((image / "root").iterdir())]


def blob_of(own: Cache, text: str) -> Path:
    """Return the cached file of the layer that has this text."""
    blobs = (own.path / "blobs/sha256").iterdir()
    return next(path for path in blobs if path.read_text() == text)


def test_image_of_a_registry_is_imported(importer: Importer, programs: Path) -> None:
    push(programs, "one", "two")

    assert contents(importer.find("x")) == ["one", "two"]


def test_configuration_that_is_not_valid_unicode_is_refused(
    importer: Importer, programs: Path
) -> None:
    push(programs, "one", config={"config": {"Env": ["A=\ud800"]}})

    with pytest.raises(
        ImageError, match=r"^image docker.io/library/x:latest: the image's configuration"
    ):
        importer.find("x")


def test_refusal_of_an_image_index_lists_the_platforms(importer: Importer, programs: Path) -> None:
    push(programs, "one")
    importer.find("x")
    (record,) = (importer.cache.path / "references").iterdir()
    os.utime(record, (0, 0))
    platforms = (
        {"os": "linux", "architecture": "s390x"},
        {"os": "linux", "architecture": "arm", "variant": "v7"},
        {"os": "unknown", "architecture": "unknown"},
        {"os": "two\nlines", "architecture": "arm"},
    )
    push(programs, index=[{}, *({"platform": platform} for platform in platforms)])

    with pytest.raises(ImageError) as raised:
        importer.find("x")

    assert str(raised.value) == (
        "image docker.io/library/x:latest: no image for linux/amd64 (available: linux/arm/v7, "
        "linux/s390x): choose another tag, or build the image for linux/amd64"
    )


def test_download_reports_its_progress(
    importer: Importer,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    push(programs, "one", "two")
    monkeypatch.setattr(watch, "_POLL", 0.001)
    monkeypatch.setattr(watch, "_FIRST_LINE", 0.0)

    importer.find("x")

    lines = capsys.readouterr().err.splitlines()
    subject = "container: image docker.io/library/x:latest"
    assert any(re.fullmatch(rf"{subject}: downloading: .* of 6 bytes in 0 s", x) for x in lines)
    assert any(re.fullmatch(rf"{subject}: unpacking: .* in 0 s", x) for x in lines)


# --- Registries that do not answer ----------------------------------------------------------------


def test_registry_must_answer_within_a_minute(importer: Importer, programs: Path) -> None:
    """Without this limit, skopeo waits forever for a registry that accepts connections."""
    (programs / "skopeo").write_text('#!/bin/sh\necho "$@" >&2\nexit 1\n')

    with pytest.raises(ImageError, match="--command-timeout 60s inspect"):
        importer.find("x")


def test_image_in_a_file_may_take_longer_than_a_minute(
    importer: Importer, programs: Path, tmp_path: Path
) -> None:
    (programs / "skopeo").write_text('#!/bin/sh\necho "$@" >&2\nexit 1\n')

    with pytest.raises(ImageError) as raised:
        importer.find(f"oci-archive:{tmp_path}")

    assert "inspect" in str(raised.value)
    assert "timeout" not in str(raised.value)


def test_unresponsive_registry_is_asked_again_only_after_some_minutes(
    importer: Importer, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    push(programs, "one")
    image = importer.find("x")
    (record,) = (importer.cache.path / "references").iterdir()
    os.utime(record, (0, 0))
    (programs / "registry.json").unlink()

    assert importer.find("x") == image
    assert "continuing with the image in the cache" in capsys.readouterr().err
    assert 200 < record.stat().st_mtime - time.time() <= 300


# --- Full disks -----------------------------------------------------------------------------------


def full(*_: object, **__: object) -> None:
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


@pytest.mark.parametrize("function", ["mkdir", "write_text"])
def test_cached_image_starts_while_the_disk_is_full(
    function: str,
    importer: Importer,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    push(programs, "one")
    image = importer.find("x")
    monkeypatch.setattr(Path, function, full)

    assert importer.find("x") == image
    assert "Disk quota exceeded: check the free space of " in capsys.readouterr().err


def test_image_that_does_not_fit_on_the_disk_is_refused(
    importer: Importer, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(programs, "one")
    monkeypatch.setattr(Path, "touch", full)

    with pytest.raises(ImageError, match=r"^image .*: Disk quota exceeded: check the free space"):
        importer.find("x")


def test_import_succeeds_even_if_old_images_cannot_be_removed(
    importer: Importer,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    push(programs, "one")
    monkeypatch.setattr(Cache, "shrink", full)

    assert contents(importer.find("x")) == ["one"]
    assert (
        "cannot remove old images from your cache: Disk quota exceeded" in capsys.readouterr().err
    )


# --- Damaged layers -------------------------------------------------------------------------------


def test_damaged_layer_in_the_cache_is_downloaded_again(
    importer: Importer, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    push(programs, "base", "two")
    importer.find("x")
    blob_of(importer.cache, "base").write_text("ba")
    push(programs, "base", "three")

    assert contents(importer.find("x")) == ["base", "three"]
    assert "damaged" in capsys.readouterr().err


def test_damaged_layer_of_the_site_is_downloaded(
    importer: Importer, programs: Path, tmp_path: Path
) -> None:
    push(programs, "base")
    importer.find("x")
    name = blob_of(importer.cache, "base").name
    importer.cache.shrink(0)
    (importer.cache.path / "blobs/sha256" / name).unlink()
    shared = tmp_path / "site/blobs/sha256" / name
    shared.parent.mkdir(parents=True)
    shared.write_text("forged")

    assert contents(importer.find("x")) == ["base"]
    assert shared.read_text() == "forged"


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_layout_that_contains_a_fifo_or_device_is_refused(
    importer: Importer, tmp_path: Path, kind: str
) -> None:
    blobs = tmp_path / "layout/blobs/sha256"
    blobs.mkdir(parents=True)
    (tmp_path / "layout/oci-layout").touch()
    if kind == "fifo":
        os.mkfifo(blobs / "f00d")
    else:
        (blobs / "f00d").symlink_to("/dev/zero")

    with pytest.raises(ImageError, match="sha256/f00d: expected a file"):
        importer.find(str(tmp_path / "layout"))


def test_failed_unpacking_of_intact_layers_is_not_repeated(
    importer: Importer, programs: Path
) -> None:
    push(programs, "base")
    runs = programs / "runs"
    (programs / "umoci").write_text(f"#!/bin/sh\necho run >>{runs}\nexit 1\n")

    with pytest.raises(ImageError, match="exit code 1"):
        importer.find("x")

    assert runs.read_text() == "run\n"


# --- Files that others own ------------------------------------------------------------------------


def test_forged_archive_does_not_change_an_image_of_the_registry(
    importer: Importer, programs: Path, tmp_path: Path
) -> None:
    """The importer runs `skopeo inspect` and then `skopeo copy`. Between the two commands, the
    owner of the archive replaces it. The layers of the archive must not enter other images."""
    push(programs, "real")
    archive = tmp_path / "archive"
    archive.write_text(json.dumps({"layers": ["real"], "copy": ["forged"]}))

    assert contents(importer.find(f"oci-archive:{archive}")) == ["forged"]

    assert contents(importer.find("x")) == ["real"]


# --- Many files -----------------------------------------------------------------------------------


def test_image_with_too_many_files_is_refused(
    importer: Importer, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST_FILES", 2)
    push(programs, "one", "two")
    assert contents(importer.find("x")) == ["one", "two"]
    push(programs, "one", "two", "three")

    with pytest.raises(ImageError, match=r"^image .*: the image has more than 2 files"):
        importer.find("x")


def test_unpacking_ends_when_there_are_too_many_files(
    importer: Importer, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST_FILES", 2)
    monkeypatch.setattr(importer_module, "_COUNT", 0)
    push(programs, "one")
    script = "for word; do :; done; mkdir $word; touch $word/a $word/b $word/c; exec sleep 1000"
    (programs / "umoci").write_text(f"#!/bin/sh\n{script}\n")

    with pytest.raises(ImageError, match="the image has more than 2 files"):
        importer.find("x")

    assert list((importer.cache.path / "temporary").iterdir()) == []

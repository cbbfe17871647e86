"""OCI layouts built in memory, for valid and hostile images."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Entry:
    """An entry of a layer, by default a regular file."""

    name: str
    text: str | bytes = ""
    mode: int = 0o644
    owner: int = 0
    kind: bytes = tarfile.REGTYPE
    target: str = ""
    """Target of a link."""
    device: tuple[int, int] = (0, 0)
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Extended attributes."""


def folder(name: str, mode: int = 0o755, owner: int = 0) -> Entry:
    return Entry(name, mode=mode, owner=owner, kind=tarfile.DIRTYPE)


def link(name: str, target: str) -> Entry:
    """Return a symbolic link."""
    return Entry(name, kind=tarfile.SYMTYPE, target=target, mode=0o777)


def layer(entries: Iterable[Entry]) -> bytes:
    """Build an uncompressed tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            content = entry.text.encode() if isinstance(entry.text, str) else entry.text
            member = tarfile.TarInfo(entry.name)
            member.type, member.mode, member.linkname = entry.kind, entry.mode, entry.target
            member.uid = member.gid = entry.owner
            member.devmajor, member.devminor = entry.device
            member.size = len(content)
            member.pax_headers = {f"SCHILY.xattr.{k}": v for k, v in entry.attributes.items()}
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def layout(
    layers: Iterable[bytes], tag: str = "image", architecture: str = "amd64", **config: Any
) -> dict[str, bytes]:
    """Build the files of an OCI layout; `config` has keys of the image's configuration."""
    files: dict[str, bytes] = {}
    index = {"schemaVersion": 2, "manifests": [_manifest(files, layers, architecture, config)]}
    return _finish(files, index, tag)


def many_architectures(
    images: Mapping[str, Iterable[bytes]], tag: str = "image", **config: Any
) -> dict[str, bytes]:
    """Build a layout with an image for each architecture."""
    files: dict[str, bytes] = {}
    manifests = [
        {
            **_manifest(files, layers, architecture, config),
            "platform": {"os": "linux", "architecture": architecture},
        }
        for architecture, layers in images.items()
    ]
    list_ = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
    return _finish(files, {"schemaVersion": 2, "manifests": [_add(files, list_, _INDEX)]}, tag)


def _finish(files: dict[str, bytes], index: dict[str, Any], tag: str) -> dict[str, bytes]:
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": tag}
    return {
        **files,
        "index.json": json.dumps(index).encode(),
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
    }


def _manifest(
    files: dict[str, bytes], layers: Iterable[bytes], architecture: str, config: Mapping[str, Any]
) -> dict[str, Any]:
    described, plain = [], []
    for tar in layers:
        plain.append(f"sha256:{hashlib.sha256(tar).hexdigest()}")
        described.append(_add(files, gzip.compress(tar, 1, mtime=0), _LAYER))
    image = {
        "architecture": architecture,
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": plain},
        "history": [{"created_by": "a test"} for _ in plain],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _add(files, image, _CONFIG),
        "layers": described,
    }
    return _add(files, manifest, _MANIFEST)


def _add(files: dict[str, bytes], content: object, kind: str) -> dict[str, Any]:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    name = hashlib.sha256(raw).hexdigest()
    files[f"blobs/sha256/{name}"] = raw
    return {"mediaType": kind, "digest": f"sha256:{name}", "size": len(raw)}

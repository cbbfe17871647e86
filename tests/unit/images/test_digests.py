"""Pods refer to an image in a registry by the digest that images/digests.json contains."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import digests, tags

OLD, NEW = (f"sha256:{letter * 64}" for letter in "ab")
REGISTRY = "registry.example.org/lab"


@pytest.fixture(autouse=True)
def _forgets() -> Iterator[None]:
    digests.known.cache_clear()
    yield
    digests.known.cache_clear()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one image."""
    (tmp_path / "images/base").mkdir(parents=True)
    (tmp_path / "images/base/Dockerfile").write_text("FROM scratch\n")
    monkeypatch.setattr(tags, "IMAGES", {"base": tags.Image("base")})
    return tmp_path


def record(root: Path, digests_by_reference: object) -> None:
    (root / digests.FILE).write_text(json.dumps(digests_by_reference))
    digests.known.cache_clear()


def test_image_reference_includes_the_recorded_digest(root: Path) -> None:
    reference = tags.reference("base", REGISTRY, root)
    assert digests.pinned("base", REGISTRY, root) == reference

    record(root, {reference: OLD})

    assert digests.pinned("base", REGISTRY, root) == f"{reference}@{OLD}"
    assert "@" not in digests.pinned("base", "registry.example.org/other", root)
    assert "@" not in digests.pinned("base", None, root)


def test_reference_of_a_new_tag_has_no_digest(root: Path) -> None:
    record(root, {tags.reference("base", REGISTRY, root): OLD})

    (root / "images/base/Dockerfile").write_text("FROM debian\n")

    assert "@" not in digests.pinned("base", REGISTRY, root)


def test_new_digests_replace_digests_of_older_tags(root: Path) -> None:
    record(root, {f"{REGISTRY}/slurmstack/base:old": OLD, "other/slurmstack/base:old": OLD})

    assert digests.write({f"{REGISTRY}/slurmstack/base:new": NEW}, root)

    assert digests.known(root) == {
        f"{REGISTRY}/slurmstack/base:new": NEW,
        "other/slurmstack/base:old": OLD,
    }
    assert not digests.write({f"{REGISTRY}/slurmstack/base:new": NEW}, root)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"a": 5}', '{"a": "latest"}', '{"a": "sha256:short"}']
)
def test_invalid_digest_file_is_refused_in_one_line(root: Path, text: str) -> None:
    (root / digests.FILE).write_text(text)

    with pytest.raises(
        tags.ContextError,
        match=r"images/digests\.json: .*delete the file, and run `make images` to write a new file",
    ):
        digests.pinned("base", REGISTRY, root)

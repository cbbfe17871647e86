"""References of images are parsed as in Pyxis, enroot, Docker and skopeo."""

import pytest

from agents.containers.errors import ImageError
from agents.containers.reference import InFile, InRegistry, parse

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ubuntu", "docker.io/library/ubuntu:latest"),
        ("ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        ("docker://ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        ("team/tool", "docker.io/team/tool:latest"),
        ("nvcr.io#nvidia/pytorch:25.06-py3", "nvcr.io/nvidia/pytorch:25.06-py3"),
        ("docker://nvcr.io#nvidia/pytorch:25.06-py3", "nvcr.io/nvidia/pytorch:25.06-py3"),
        ("nvcr.io/nvidia/pytorch:25.06-py3", "nvcr.io/nvidia/pytorch:25.06-py3"),
        ("localhost:5000#a/b:c", "localhost:5000/a/b:c"),
        ("localhost:5000/a/b:c", "localhost:5000/a/b:c"),
        ("localhost/a", "localhost/a:latest"),
        (f"example.org#a@{DIGEST}", f"example.org/a@{DIGEST}"),
        (f"example.org#a:1@{DIGEST}", f"example.org/a@{DIGEST}"),
    ],
)
def test_references_of_registry_images_are_parsed(text: str, expected: str) -> None:
    assert str(parse(text)) == expected


def test_user_in_a_reference_is_parsed() -> None:
    parsed = parse("docker://$oauthtoken@nvcr.io#nvidia/pytorch")

    assert isinstance(parsed, InRegistry)
    assert (parsed.user, parsed.registry) == ("$oauthtoken", "nvcr.io")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/images/a.sqsh", InFile("/images/a.sqsh")),
        ("./a.sqsh", InFile("./a.sqsh")),
        ("../a", InFile("../a")),
        ("oci:/images/a:tag", InFile("/images/a:tag", "oci")),
        ("oci-archive:a.tar", InFile("a.tar", "oci-archive")),
        ("docker-archive:a.tar", InFile("a.tar", "docker-archive")),
    ],
)
def test_references_of_images_in_files_are_parsed(text: str, expected: InFile) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "a b", "UPPER", "a:b:c", "a//b", "-x", "--authfile=x", "a@b@c#d@", "#a", "@#a"),
        *("a\nb", "a\x1b[2Jb", "x" * 2000, "docker://", "host:99999999#a", ":tag"),
    ],
)
def test_invalid_reference_is_reported_in_one_line(text: str) -> None:
    with pytest.raises(ImageError) as caught:
        parse(text)

    assert "expected" in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("scheme", ["dockerd://", "podman://"])
def test_daemon_image_is_refused_and_the_error_names_a_remedy(scheme: str) -> None:
    with pytest.raises(ImageError, match="push the image to a registry"):
        parse(f"{scheme}ubuntu")

"""Names of images on nodes."""

import pytest

from local.images import canonical


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("debian", "docker.io/library/debian:latest"),
        ("debian:trixie-slim", "docker.io/library/debian:trixie-slim"),
        ("slurmstack/login:1a", "docker.io/slurmstack/login:1a"),
        ("registry.example/slurmstack/login:1a", "registry.example/slurmstack/login:1a"),
        ("localhost:5000/slurmstack/login", "localhost:5000/slurmstack/login:latest"),
    ],
)
def test_canonical_image_name_has_the_form_that_containerd_uses(
    reference: str, expected: str
) -> None:
    assert canonical(reference) == expected

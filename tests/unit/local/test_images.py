"""Images as the nodes know them."""

import pytest

from local.images import canonical


@pytest.mark.parametrize(
    ("reference", "known_as"),
    [
        ("debian", "docker.io/library/debian:latest"),
        ("debian:trixie-slim", "docker.io/library/debian:trixie-slim"),
        ("slurmstack/login:1a", "docker.io/slurmstack/login:1a"),
        ("registry.example/slurmstack/login:1a", "registry.example/slurmstack/login:1a"),
        ("localhost:5000/slurmstack/login", "localhost:5000/slurmstack/login:latest"),
    ],
)
def test_an_image_is_found_under_the_name_that_containerd_gives_it(
    reference: str, known_as: str
) -> None:
    assert canonical(reference) == known_as

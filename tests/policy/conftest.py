"""Fixtures with the resources of each stack file. The tests record these resources only once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.paths import ROOT
from policy.allowed import Allowed, read
from policy.catalogue import NAMES
from tests.policy.judge import Stack, shown, stack_config
from tests.policy.stacks import StackOf
from tests.support.graph import record
from tests.support.stack import FILES, KEY


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program and its stack files. It has a public key at the path where `make
    up` writes the key of the dev stack."""
    root = tmp_path_factory.mktemp("project")
    (root / "__main__.py").symlink_to(ROOT / "__main__.py")
    for path in FILES:
        (root / path.name).symlink_to(path)
    (root / ".local/dev").mkdir(parents=True)
    (root / ".local/dev/id_ed25519.pub").write_text(KEY)
    return root


@pytest.fixture(scope="session")
def stack_of(project: Path) -> Iterator[StackOf]:
    """Return a function that takes the name of a stack file. The function returns the stack's
    resources, and the exceptions to policy rules that the file allows."""
    cached: dict[str, tuple[Stack, Allowed]] = {}
    with pytest.MonkeyPatch.context() as monkeypatch:

        def stack_of(name: str) -> tuple[Stack, Allowed]:
            if name not in cached:
                config = stack_config(project / f"Pulumi.{name}.yaml")
                graph = record(monkeypatch, config, project)
                cached[name] = shown(graph), read(config, "slurmstack", NAMES)
            return cached[name]

        yield stack_of

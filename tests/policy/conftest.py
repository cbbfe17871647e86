"""The graphs of the stack files, each recorded once."""

from collections.abc import Callable, Iterator

import pytest

from policy.allowed import Allowed, read
from policy.catalogue import NAMES
from tests.policy.judge import Stack, shown, stack_config
from tests.unit.components.graph import ROOT, record
from tests.unit.components.stack import KEY

STACKS = sorted(path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml"))

StackOf = Callable[[str], tuple[Stack, Allowed]]


@pytest.fixture(scope="session")
def stack_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackOf]:
    """What the program asks for by a stack file, and what that file allows."""
    root = tmp_path_factory.mktemp("project")
    (root / "__main__.py").symlink_to(ROOT / "__main__.py")
    (root / ".local/dev").mkdir(parents=True)
    (root / ".local/dev/id_ed25519.pub").write_text(KEY)
    found: dict[str, tuple[Stack, Allowed]] = {}
    with pytest.MonkeyPatch.context() as monkeypatch:

        def stack_of(name: str) -> tuple[Stack, Allowed]:
            if name not in found:
                config = stack_config(ROOT / f"Pulumi.{name}.yaml")
                graph = record(monkeypatch, config, root)
                found[name] = shown(graph), read(config, "slurmstack", NAMES)
            return found[name]

        yield stack_of

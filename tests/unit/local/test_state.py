"""The files of a stack are created once, and again only if they are missing or stale."""

import ipaddress
import json
import stat
from pathlib import Path

import pytest
import yaml

from local import paths
from local import state as state_module
from local.certificates import Authority, Pair
from local.configuration import ADMIN, Node
from local.state import State

NETWORK = ipaddress.IPv4Network("172.30.5.0/24")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setattr(state_module, "stack_directory", lambda stack: tmp_path / stack)
    return State("dev")


def content(state: State) -> dict[str, bytes]:
    files = (path for path in state.directory.rglob("*") if path.is_file())
    return {str(path.relative_to(state.directory)): path.read_bytes() for path in files}


def write_all(state: State) -> None:
    state.write_user_files()
    state.write_cluster_files(16443)
    for ordinal in (0, 1):
        state.write_node_files(Node(ordinal, NETWORK))


def test_second_run_changes_no_file(state: State) -> None:
    write_all(state)
    before = content(state)
    write_all(state)
    assert content(state) == before


def test_missing_files_are_created_again(state: State) -> None:
    write_all(state)
    names = set(content(state))
    for name in sorted(name for name in names if not name.startswith("nodes/")):
        (state.directory / name).unlink()
        write_all(state)
        assert set(content(state)) == names
    authority = Authority(
        Pair((state.pki / "ca.crt").read_bytes(), (state.pki / "ca.key").read_bytes())
    )
    assert authority.has_issued((state.pki / "admin.crt").read_bytes(), ADMIN)


def test_secret_files_are_readable_only_by_the_owner(state: State) -> None:
    write_all(state)
    for name in ("id_ed25519", "passphrase", "kubeconfig", "pki/ca.key", "pki/admin.key"):
        assert stat.S_IMODE((state.directory / name).stat().st_mode) == 0o600


def test_kubeconfig_uses_the_published_port(state: State) -> None:
    write_all(state)
    state.write_cluster_files(16500)
    config = yaml.safe_load(state.kubeconfig.read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:16500"


def test_worker_does_not_get_the_key_of_the_authority(state: State) -> None:
    write_all(state)
    names = {str(path.relative_to(state.node(Node(1, NETWORK)))) for path in
             state.node(Node(1, NETWORK)).rglob("*.key")}  # fmt: skip
    assert names == {"pki/kubelet.key", "pki/kube-proxy.key"}


def test_node_with_a_new_address_gets_a_new_certificate(state: State) -> None:
    write_all(state)
    before = content(state)
    files = state.write_node_files(Node(1, ipaddress.IPv4Network("172.30.6.0/24")))
    assert files["pki/kubelet.crt"] != before["nodes/node-1/pki/kubelet.crt"]
    assert files["pki/kube-proxy.crt"] == before["nodes/node-1/pki/kube-proxy.crt"]


def test_obsolete_files_of_a_node_are_removed(state: State) -> None:
    write_all(state)
    stale = state.node(Node(1, NETWORK)) / "programs" / "late" / "old"
    stale.write_text("old\n")
    state.write_node_files(Node(1, NETWORK))
    assert not stale.exists()


def test_returned_files_match_the_files_on_disk(state: State) -> None:
    write_all(state)
    node = Node(0, NETWORK)
    files = state.write_node_files(node)
    assert {name: (state.node(node) / name).read_bytes() for name in files} == files
    assert json.loads(files["kubelet.yaml"])["kind"] == "KubeletConfiguration"


def test_file_is_written_atomically_and_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    paths.write(path, "one")
    paths.write(path, "two", 0o644)
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]

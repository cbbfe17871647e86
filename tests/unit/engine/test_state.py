"""The state is a Pulumi checkpoint: the engine reads, changes and writes all of its content."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from engine import secrets
from engine.backend import Backend, write_atomically
from engine.errors import EngineError
from engine.journal import Journal
from engine.secrets import PassphraseCrypter
from engine.state import Pending, Sealer, Snapshot, StoredResource, in_the_clear, to_json
from engine.values import Secret

WRITTEN_BY_PULUMI = Path(__file__).with_name("data") / "pulumi-3.272.json"
URN = "urn:pulumi:dev::web::x:y:Z::"


def stored(name: str, **values: Any) -> StoredResource:
    return replace(StoredResource(URN + name, "x:y:Z", True, id=name), **values)


@pytest.fixture
def crypter(monkeypatch: pytest.MonkeyPatch) -> PassphraseCrypter:
    monkeypatch.setattr(secrets, "_ROUNDS", 10)
    return PassphraseCrypter.new("x")


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    return Backend(tmp_path, "web", "dev")


def _names(snapshot: Snapshot) -> list[str]:
    return [r.urn.removeprefix(URN) for r in snapshot.resources]


def _opened(stored: Any, crypter: PassphraseCrypter) -> Any:
    """Decrypt the secrets in a stored value, and parse their JSON text.

    Without parsing, equal secrets could differ, because Go and Python escape JSON differently.
    """

    def read(value: Any) -> Any:
        if isinstance(value, dict):
            if "plaintext" in value:
                return ("secret", json.loads(value["plaintext"]))
            return {key: read(item) for key, item in value.items()}
        return [read(item) for item in value] if isinstance(value, list) else value

    return read(in_the_clear(stored, crypter))


def test_pulumi_checkpoint_is_written_as_it_was_read(tmp_path: Path) -> None:
    backend = Backend(tmp_path, "demo", "dev")
    backend.file.parent.mkdir(parents=True)
    shutil.copy(WRITTEN_BY_PULUMI, backend.file)
    checkpoint = backend.read()
    assert checkpoint is not None
    assert checkpoint.salt is not None
    crypter = PassphraseCrypter.from_state("x", checkpoint.salt)
    snapshot = checkpoint.open(crypter)
    assert snapshot.outputs["pet"] == "distinct-goldfish"
    assert isinstance(snapshot.outputs["pw"], Secret)
    written = Sealer(crypter).deployment(snapshot)
    recorded: Any = json.loads(WRITTEN_BY_PULUMI.read_text())["checkpoint"]["latest"]
    assert _opened(written["resources"], crypter) == _opened(recorded["resources"], crypter)
    assert written["secrets_providers"] == recorded["secrets_providers"]
    assert written["manifest"]["magic"] == recorded["manifest"]["magic"]


def test_every_field_of_a_resource_is_written_and_read_back(
    backend: Backend, crypter: PassphraseCrypter
) -> None:
    full = StoredResource(
        urn=URN + "a",
        type="x:y:Z",
        custom=True,
        id="1",
        inputs={"a": 1, "b": Secret({"c": [None, True]})},
        outputs={"d": Secret("e")},
        parent=URN + "p",
        provider=f"{URN}q::2",
        dependencies=(URN + "b", URN + "c"),
        property_dependencies={"a": (URN + "b",), "b": ()},
        protect=True,
        external=True,
        delete=True,
        taint=True,
        pending_replacement=True,
        retain_on_delete=True,
        deleted_with=URN + "d",
        replace_with=(URN + "e",),
        init_errors=("one", "two"),
        additional_secret_outputs=("d",),
        custom_timeouts={"create": 90.0},
        ignore_changes=("f",),
        replace_on_changes=("g",),
        replacement_trigger=Secret(3),
        created="then",
        modified="now",
        carried={"sourcePosition": "project:///x"},
    )
    empty = StoredResource("", "", False)
    assert all(getattr(full, field.name) != getattr(empty, field.name) for field in fields(full)), (
        "add the new field to this test"
    )
    backend.write(Sealer(crypter).deployment(Snapshot((full,), (Pending("creating", full),))))
    checkpoint = backend.read()
    assert checkpoint is not None
    back = checkpoint.open(crypter)
    for resource in (back.resources[0], back.pending[0].resource):
        assert {f.name: getattr(resource, f.name) for f in fields(resource)} == {
            f.name: getattr(full, f.name) for f in fields(full)
        }
    assert back.pending[0].kind == "creating"


def test_empty_fields_of_a_resource_are_omitted() -> None:
    bare = StoredResource(URN + "a", "x:y:Z", False)
    assert to_json(bare, lambda value: value) == {
        "urn": URN + "a",
        "custom": False,
        "type": "x:y:Z",
    }


def test_stack_without_a_state_file_has_no_snapshot(backend: Backend) -> None:
    assert backend.read() is None


def test_previous_state_is_kept_as_backup(backend: Backend, crypter: PassphraseCrypter) -> None:
    sealer = Sealer(crypter)
    backend.write(sealer.deployment(Snapshot((stored("a"),))))
    first = backend.file.read_text()
    backend.write(sealer.deployment(Snapshot((stored("b"),))))
    assert backend.file.with_name("dev.json.bak").read_text() == first


def test_failed_write_leaves_the_state_file_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    write_atomically(file, "one")

    def full(_descriptor: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(file, "two")
    assert file.read_text() == "one"
    assert list(tmp_path.iterdir()) == [file]


def test_error_for_a_damaged_state_names_the_backup(backend: Backend) -> None:
    backend.file.parent.mkdir(parents=True)
    backend.file.write_text("{")
    with pytest.raises(EngineError, match=r"dev\.json: cannot be read: .* dev\.json\.bak"):
        backend.read()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"version": 2}, "version 2 of the state's format is not supported"),
        ({"version": 3}, "the state has no key `checkpoint`; restore the previous state"),
        ({"version": 3, "deployment": {}}, r"the state has no key `checkpoint`; .* stack import"),
        ([], r"dev\.json: is not a state file of Pulumi: .* dev\.json\.bak"),
        ({"deployment": {}}, "is not a state file of Pulumi"),
        (
            {"version": 3, "checkpoint": {"latest": {"secrets_providers": {"type": "service"}}}},
            "secrets provider 'service' is not supported",
        ),
    ],
)
def test_unsupported_state_format_is_refused(backend: Backend, content: Any, message: str) -> None:
    backend.file.parent.mkdir(parents=True)
    backend.file.write_text(json.dumps(content))
    with pytest.raises(EngineError, match=message):
        backend.read()


def test_error_for_a_damaged_layout_names_its_file(backend: Backend) -> None:
    backend.root.mkdir(parents=True, exist_ok=True)
    (backend.root / "meta.yaml").write_text("{")
    with pytest.raises(EngineError, match=r"meta\.yaml: cannot be read: .*; restore it"):
        backend.read()


def test_compressed_state_is_refused_and_not_ignored(backend: Backend) -> None:
    backend.file.parent.mkdir(parents=True)
    backend.file.with_name("dev.json.gz").write_bytes(b"")
    with pytest.raises(EngineError, match="compressed"):
        backend.read()


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 101])
def test_stack_name_cannot_leave_the_state_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(EngineError, match="use at most 100 letters"):
        Backend(tmp_path, "web", name)


def test_secret_is_not_written_without_a_passphrase() -> None:
    with pytest.raises(EngineError, match="PULUMI_CONFIG_PASSPHRASE"):
        Sealer(None).deployment(Snapshot((stored("a", inputs={"x": [Secret(1)]}),)))


def test_plain_outputs_can_be_read_without_a_passphrase(
    backend: Backend, crypter: PassphraseCrypter
) -> None:
    stack = replace(
        stored("s", outputs={"open": [1], "hush": {"x": Secret(1)}}), type="pulumi:pulumi:Stack"
    )
    backend.write(Sealer(crypter).deployment(Snapshot((stack,))))
    checkpoint = backend.read()
    assert checkpoint is not None
    assert checkpoint.open(None).outputs == {"open": [1], "hush": {"x": Secret(None)}}


def test_plaintext_export_has_no_ciphertext(crypter: PassphraseCrypter) -> None:
    deployment = Sealer(crypter).deployment(Snapshot((stored("a", inputs={"x": Secret(1)}),)))
    clear = in_the_clear(deployment, crypter)
    assert clear["resources"][0]["inputs"]["x"]["plaintext"] == "1"
    assert "ciphertext" not in json.dumps(clear)


# -- the journal -----------------------------------------------------------------------------------


def test_snapshot_lists_processed_resources_before_those_not_yet_processed() -> None:
    a, b = stored("a"), stored("b")
    journal = Journal(Snapshot((a, b)))
    journal.settle(stored("c"), None)
    journal.settle(stored("b", inputs={"x": 1}), b)
    assert _names(journal.snapshot()) == ["c", "b", "a"]
    assert journal.left() == (a,)
    assert journal.old(URN + "b") is None


def test_replaced_resource_stays_in_the_state_until_it_is_deleted() -> None:
    a = stored("a")
    journal = Journal(Snapshot((a,)))
    journal.settle(stored("a", id="2"), a, condemn=True)
    assert [(r.id, r.delete) for r in journal.snapshot().resources] == [("2", False), ("a", True)]
    assert journal.old(URN + "a") is None, (
        "the engine must not compare the program with the replaced resource"
    )
    condemned = journal.find(URN + "a", "a")
    assert condemned is not None
    journal.drop(condemned)
    assert [r.id for r in journal.snapshot().resources] == ["2"]


def test_operation_is_pending_from_begin_to_end() -> None:
    journal, a = Journal(Snapshot()), stored("a")
    journal.begin("creating", a)
    assert [(p.kind, p.resource) for p in journal.snapshot().pending] == [("creating", a)]
    journal.end(a)
    assert journal.snapshot().pending == ()


def test_references_to_a_renamed_resource_get_its_new_urn() -> None:
    a = stored("a")
    b = stored(
        "b",
        parent=a.urn,
        dependencies=(a.urn,),
        provider=f"{a.urn}::a",
        deleted_with=a.urn,
        replace_with=(a.urn,),
        property_dependencies={"x": (a.urn,)},
    )
    journal = Journal(Snapshot((a, b)))
    journal.settle(stored("new"), a)
    renamed = journal.snapshot().resources[1]
    assert set(renamed.references()) == {URN + "new"}
    assert renamed.provider == f"{URN}new::a"

"""The file of a new stack: the questions, the content, and refused values."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
import yaml
from pydantic import BaseModel

from components.settings import (
    ExistingCluster,
    LocalCluster,
    Login,
    MetalCluster,
    Settings,
    SettingsError,
    read_stack,
)
from local import new_stack
from local.new_stack import HEAD, Document, Interview, clusters, look_up, main, parse_option, put
from tests.support.stack import KEY, settings

OPTIONS = (
    "cluster.kind=existing",
    "cluster.context=lab",
    "registry=registry.example.org/hpc",
    "nodesets.0.name=cpu",
    "nodesets.0.replicas=4",
    "nodesets.0.cpus=8",
    "nodesets.0.memory=16GiB",
    "users.0={name: ada, uid: 2000, ssh_key_files: [ada.pub]}",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ada.pub").write_text(KEY)
    return tmp_path


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)


def options(*more: str) -> list[str]:
    return [word for option in (*OPTIONS, *more) for word in ("--set", option)]


def answering(*answers: str) -> Callable[[str], str]:
    """Return an input function that gives these answers in turn, and then fails."""
    left: Iterator[str] = iter(answers)
    return lambda _question: next(left)


# --- From options --------------------------------------------------------------------------------


@pytest.mark.usefixtures("silent")
def test_command_line_options_alone_create_a_valid_stack(project: Path) -> None:
    assert main(["lab", *options()], project) == 0

    text = (project / "Pulumi.lab.yaml").read_text()
    assert text.startswith(HEAD)
    assert set(yaml.safe_load(text)) == {"config"}
    settings = read_stack("lab", project)
    assert settings.cluster_name == "lab"
    assert isinstance(settings.cluster, ExistingCluster)
    assert settings.cluster.context == "lab"
    (nodeset,) = settings.nodesets
    assert (nodeset.name, nodeset.replicas, nodeset.cpus, nodeset.memory) == ("cpu", 4, 8, 16384)


@pytest.mark.usefixtures("silent")
def test_existing_stack_file_is_never_overwritten(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "Pulumi.lab.yaml").write_text("mine")

    assert main(["lab", *options()], project) == 1

    assert (project / "Pulumi.lab.yaml").read_text() == "mine"
    assert "Pulumi.lab.yaml: already exists" in capsys.readouterr().err


REFUSED = [
    (("nodesets.0.cpus=many",), "slurmstack:nodesets[cpu].cpus"),
    (("cluster.kind=cloudy",), "slurmstack:cluster.kind"),
    (("nodesets.7.name=far",), "the next free index"),
    (("users.0.ssh_key_files=[none.pub]",), "cannot read"),
    (("no-value",), "expected key=value"),
    (("registry=[",), "is not valid YAML"),
    (("colour=red",), "slurmstack:colour: unknown key"),
]


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(("more", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_invalid_settings_are_not_written_to_a_file(
    project: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], message: str
) -> None:
    assert main(["lab", *options(*more)], project) == 1

    assert not (project / "Pulumi.lab.yaml").exists()
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("name", ["Lab", "../lab", "lab.yaml", "lab-", ""])
def test_invalid_stack_name_is_refused(project: Path, name: str) -> None:
    assert main([name], project) == 1
    assert not list(project.glob("Pulumi*"))


@pytest.mark.usefixtures("silent")
def test_private_key_is_refused_and_not_printed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "ada.pub").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nhush")

    assert main(["lab", *options()], project) == 1

    error = capsys.readouterr().err
    assert "is a private key" in error
    assert "hush" not in error


# --- From answers --------------------------------------------------------------------------------


def test_interview_for_a_local_stack_needs_few_answers(tmp_path: Path) -> None:
    document: Document = {}
    lines: list[str] = []
    answers = ("", "local", "cpu", "2", "2", "1GiB", "", "no", "", "", "", "", "")

    Interview(document, answering(*answers), lines.append).stack("mine")
    new_stack.check_keys("mine", new_stack.read("mine", document), tmp_path)

    (tmp_path / "Pulumi.mine.yaml").write_text(new_stack.written(document))
    settings = read_stack("mine", tmp_path)
    assert isinstance(settings.cluster, LocalCluster)
    assert settings.cluster_name == "mine"
    assert settings.login.node_port == 32222
    assert settings.users[0].ssh_key_files == (".local/mine/id_ed25519.pub",)


def test_question_is_repeated_after_an_invalid_answer() -> None:
    document: Document = {"cluster": {"kind": "local"}}
    lines: list[str] = []
    answers = ("mine", "CPU!", "cpu", "-1", "two", "2", "", "2", "1GB", "1GiB")
    interview = Interview(document, answering(*answers), lines.append)

    with pytest.raises(StopIteration):
        interview.stack("mine")

    assert document["nodesets"] == [{"name": "cpu", "replicas": 2, "cpus": 2, "memory": "1GiB"}]
    assert "nodesets.0.cpus: this setting has no default; type a value" in lines
    wrong = [line for line in lines if line.startswith("nodesets[")]
    assert [re.split(r", |; |: '", line)[0] for line in wrong] == [
        'nodesets[0].name: "CPU!": expected a DNS label: at most 63 characters',
        'nodesets[cpu].replicas: "-1": expected at least 0',
        'nodesets[cpu].replicas: "two": expected a whole number',
        'nodesets[cpu].memory: "1GB": expected a whole number from 1 to 9999999 with its unit',
    ]


def test_interview_asks_for_a_change_until_the_answers_fit_together() -> None:
    document: Document = {"users": [{"name": "ada"}, {"name": "ada"}]}
    lines: list[str] = []
    interview = Interview(
        document, answering("users.1.name", "users.9.name=x", "users.1.name=bob"), lines.append
    )

    def check() -> Settings:
        if document["users"][0] == document["users"][1]:
            raise SettingsError("users: two entries are named 'ada'; give each a unique name")
        return settings()

    interview.correct(check)

    assert document["users"] == [{"name": "ada"}, {"name": "bob"}]
    assert lines[0] == "\nerror: users: two entries are named 'ada'; give each a unique name"
    assert "expected key=value" in lines[1]
    assert "the next free index" in lines[2]


def test_empty_answer_instead_of_a_change_ends_the_interview() -> None:
    def check() -> Settings:
        raise SettingsError("users: two entries are named 'ada'")

    with pytest.raises(SettingsError, match="two entries are named"):
        Interview({}, answering(""), lambda _line: None).correct(check)


def test_error_in_a_list_answer_names_the_item() -> None:
    lines: list[str] = []
    interview = Interview({}, answering("10.0.0.0/8, home", "10.0.0.0/8"), lines.append)

    assert interview.ask(("login",), Login, "source_ranges") == ["10.0.0.0/8"]
    (refusal,) = lines[1:]
    assert refusal.startswith('login.source_ranges[1]: "home": expected an address range, such as')


def test_error_in_an_answer_names_the_field_inside_it() -> None:
    lines: list[str] = []
    document: Document = {"cluster": {"kind": "metal"}}
    answers = ("{name: a, adress: 192.0.2.1}", '{name: a, address: "192.0.2.1", host_key: x}')
    interview = Interview(document, answering(*answers), lines.append)

    with pytest.raises(StopIteration):
        interview.ask(("cluster",), MetalCluster, "machines")

    assert [line.split(": ")[:2] for line in lines[1:]] == [
        ["cluster.machines[0].address", "is required; add it"],
        ["cluster.machines[0].host_key", '"x"'],
    ]


@pytest.mark.parametrize("end", [EOFError, KeyboardInterrupt])
def test_interrupted_interview_prints_the_answers(
    end: type[BaseException],
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter(["lab", "existing", "somewhere"])

    def reply(_question: str) -> str:
        for answer in answers:
            return answer
        raise end

    monkeypatch.setattr("builtins.input", reply)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)

    assert main(["lab"], project) == 1

    assert not (project / "Pulumi.lab.yaml").exists()
    head, _, last = capsys.readouterr().err.strip().rpartition("\n")
    assert last.startswith("stopped: Pulumi.lab.yaml was not written; ")
    assert yaml.safe_load(head)["config"] == {
        "slurmstack:cluster_name": "lab",
        "slurmstack:cluster": {"kind": "existing", "context": "somewhere"},
    }


def test_interview_covers_gpus_nodesets_and_networks() -> None:
    document: Document = {"cluster": {"kind": "existing"}}
    answers = (
        *("lab", "", "registry.example.org", "2TiB", "shared"),
        *("gpu", "2", "64", "512GiB", "yes", "h100", "8"),
        *("yes", "cpu", "4", "32", "128GiB", "no", "no"),
        *("8", "16GiB", "LoadBalancer", "192.0.2.0/24, 198.51.100.0/24"),
        *("ada", "2001", "ada.pub"),
    )

    Interview(document, answering(*answers), lambda _line: None).stack("lab")

    assert document["nodesets"][0]["gpus"] == {"type": "h100", "count": 8}
    assert [nodeset["name"] for nodeset in document["nodesets"]] == ["gpu", "cpu"]
    assert document["jail"] == {"size": "2TiB", "storage_class": "shared"}
    assert document["login"] == {
        "limits": {"cpus": 8, "memory": "16GiB"},
        "service": "LoadBalancer",
        "source_ranges": ["192.0.2.0/24", "198.51.100.0/24"],
    }
    assert document["users"] == [{"name": "ada", "uid": 2001, "ssh_key_files": ["ada.pub"]}]


def test_interview_offers_every_kind_of_cluster() -> None:
    lines: list[str] = []
    interview = Interview({}, answering("mine", "", "metall"), lines.append)

    with pytest.raises(StopIteration):
        interview.stack("mine")

    assert {"existing", "local"} <= set(clusters())
    assert any(all(kind in line for kind in clusters()) for line in lines)
    assert lines[-2:] == [
        "cluster.kind: no kind of cluster was typed; known: eks, existing, local, metal, nebius",
        "cluster.kind: 'metall' is not a kind of cluster; did you mean 'metal'?",
    ]


class Machines(BaseModel):
    platform: str
    """Kind of machine."""
    fabric: str | None = None


class Cloud(BaseModel):
    kind: Literal["cloud"]
    project: str
    machines: dict[str, Machines] = {}


def test_interview_for_a_cloud_asks_for_machines_of_each_nodeset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(new_stack, "clusters", lambda: {"cloud": Cloud})
    document: Document = {"cluster_name": "lab", "nodesets": [{"name": "a"}, {"name": "b"}]}
    interview = Interview(
        document,
        answering(
            "cloud", "p-1", "", "", "", *("2", "4", "8GiB", "no") * 2, "no", "small", "large"
        ),
        lambda _line: None,
    )

    with pytest.raises(StopIteration):
        interview.stack("lab")

    assert document["cluster"] == {
        "kind": "cloud",
        "project": "p-1",
        "machines": {"a": {"platform": "small"}, "b": {"platform": "large"}},
    }


def test_interview_for_kind_metal_asks_for_a_list_of_machines() -> None:
    document: Document = {}
    machine = f"{{name: head, address: 192.0.2.10, host_key: {KEY}}}"
    interview = Interview(document, answering("lab", "metal", machine, "head"), lambda _line: None)

    with pytest.raises(StopIteration):
        interview.stack("lab")

    assert document["cluster"] == {
        "kind": "metal",
        "machines": [{"name": "head", "address": "192.0.2.10", "host_key": KEY}],
        "control_planes": ["head"],
    }


def test_interview_skips_values_that_options_give() -> None:
    document: Document = {}
    for option in (
        *OPTIONS,
        "cluster_name=lab",
        "jail.size=1TiB",
        "jail.storage_class=shared",
        "login.limits={cpus: 8, memory: 16GiB}",
        "login.service=NodePort",
    ):
        put(document, *parse_option(option))
    before = yaml.safe_dump(document)

    # The interview still asks for GPUs, for another nodeset and for the port.
    Interview(document, answering("no", "no", ""), lambda _line: None).stack("lab")

    assert yaml.safe_dump(document) == before


def test_value_that_put_stores_can_be_looked_up() -> None:
    document: Document = {}
    put(document, ("a", "0", "b"), 1)
    put(document, ("a", "1"), {"b": 2})
    put(document, ("a", "0", "b"), 3)

    assert document == {"a": [{"b": 3}, {"b": 2}]}
    assert look_up(document, ("a", "1", "b")) == 2
    assert look_up(document, ("a", "2", "b")) is None
    with pytest.raises(SettingsError, match="the next free index"):
        put(document, ("a", "5"), 1)

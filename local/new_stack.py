"""Write the file of a new stack, from answers on a terminal or from options.

`python -m local.new_stack NAME [--set key=value …]`

A key is the path of a setting below `slurmstack:`. Its parts are separated by dots. An item of a
list is named by its index, which starts at 0. Example:
`--set cluster.kind=existing --set nodesets.0.name=cpu`. A value is YAML. On a terminal, the command
asks for missing values. The command writes the file only if the settings are valid, and never
overwrites a file.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from components.conventions import PROJECT, USER_IDS
from components.settings import (
    STACK_SCHEMA,
    Gpus,
    Jail,
    Limits,
    Login,
    Nodeset,
    Settings,
    SettingsError,
    User,
    explained,
    parse_ssh_key,
    read_stack,
)
from components.settings.types import known_names
from local.paths import ROOT
from stackfile import StackFileError, parse

HEAD = f"# yaml-language-server: $schema={STACK_SCHEMA.relative_to(ROOT)}\n"
"""First line of the file. Because of it, editors complete and check the settings."""
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

_SSSD = "sssd, which looks up the directory's users, starts only as root"
Key = tuple[str, ...]
Document = dict[str, Any]


# --- Documents -----------------------------------------------------------------------------------


def put(document: Document, key: Key, value: Any) -> None:
    """Set a value, and create its parents. Raises `SettingsError` if the key is invalid."""
    here: Any = document
    for step, deeper in zip(key, (*key[1:], None), strict=True):
        inner = value if deeper is None else [] if deeper.isdecimal() else {}
        if isinstance(here, list) and step.isdecimal() and int(step) <= len(here):
            if int(step) == len(here):
                here.append(inner)
            elif deeper is None:
                here[int(step)] = inner
            here = here[int(step)]
        elif isinstance(here, dict) and not step.isdecimal():
            if deeper is None:
                here[step] = inner
            here = here.setdefault(step, inner)
        else:
            raise SettingsError(
                f"{'.'.join(key)}: '{step}': expected the name of a setting; in a list, expected"
                " the index of an item, or the next free index (the first index is 0)"
            )


def look_up(document: Document, key: Key) -> Any:
    here: Any = document
    for step in key:
        if isinstance(here, list) and step.isdecimal() and int(step) < len(here):
            here = here[int(step)]
        elif isinstance(here, dict):
            here = here.get(step)
        else:
            return None
    return here


def parse_option(text: str) -> tuple[Key, Any]:
    """Return key and value of one `--set`. Raises `SettingsError`."""
    key, separator, value = text.partition("=")
    steps = tuple(key.strip().split("."))
    if not separator or not all(steps):
        raise SettingsError(
            f"--set {text}: expected key=value, for example --set cluster.kind=existing"
        )
    try:
        return steps, parse(value)
    except StackFileError:
        raise SettingsError(
            f"--set {text}: the text after '=' is not valid YAML; put the text in quotes"
        ) from None


# --- Questions -----------------------------------------------------------------------------------


class Interview:
    """Ask for the values that a document does not have yet, and add the answers to it."""

    def __init__(
        self, document: Document, reply: Callable[[str], str], say: Callable[[str], None]
    ) -> None:
        self.document = document
        self._reply = reply
        self._say = say

    def ask(self, at: Key, model: type[BaseModel], name: str, default: Any = None) -> Any:
        """Return a field's value; ask until the answer is valid.

        Return None if the field is optional and the user gives an empty answer.
        """
        key, field = (*at, name), model.model_fields[name]
        known = look_up(self.document, key)
        if known is not None:
            return known
        self._say(f"\n{_help(field)}")
        while True:
            text = self._reply(f"{'.'.join(key)}{'' if default is None else f' [{default}]'}: ")
            value = _understood(field, text.strip()) if text.strip() else default
            if value is None and field.is_required():
                self._say(f"{'.'.join(key)}: this setting has no default; type a value")
                continue
            problems = [] if value is None else _problems(field, value)
            if not problems:
                if value is not None:
                    put(self.document, key, value)
                return value
            self._say(explained(problems[0], self.document, self._place(key)))

    def _place(self, key: Key) -> list[str | int]:
        """Return the key in pydantic's form, which has the cluster's kind after `cluster`."""
        place: list[str | int] = [int(step) if step.isdecimal() else step for step in key]
        kind = look_up(self.document, ("cluster", "kind"))
        return [*place[:1], kind, *place[1:]] if place[0] == "cluster" else place

    def stack(self, name: str) -> None:
        """Ask all questions for a new stack."""
        self.ask((), Settings, "cluster_name", name)
        kind = self._cluster()
        if kind != "local":
            self.ask((), Settings, "registry")
            self.ask(("jail",), Jail, "size")
            self.ask(("jail",), Jail, "storage_class")
        self._nodesets()
        self._machines(clusters()[kind])
        if kind != "local":
            for name in ("cpus", "memory"):
                self.ask(("login", "limits"), Limits, name)
        service = self.ask(("login",), Login, "service", "NodePort" if kind == "local" else None)
        if service == "NodePort":
            self.ask(("login",), Login, "node_port", 32222 if kind == "local" else None)
        if (service or Login().service) == "LoadBalancer":
            self.ask(("login",), Login, "source_ranges")
        first = ("users", "0")
        if self.ask(first, User, "name", "researcher"):
            self.ask(first, User, "uid", USER_IDS.start)
            made = [f".local/{name}/id_ed25519.pub"] if kind == "local" else None
            self.ask(first, User, "ssh_key_files", made)

    def correct(self, check: Callable[[], Settings]) -> Settings:
        """Return the settings that `check` returns. While `check` fails, ask for a change.

        Raises `SettingsError` if the user stops.
        """
        while True:
            try:
                return check()
            except SettingsError as error:
                self._say(f"\nerror: {error}")
                if not self._change():
                    raise

    def _change(self) -> bool:
        """Ask for one change until it is valid; return False if the answer is empty."""
        question = (
            "type one change as key=value, or press only Enter, to stop without writing the"
            " stack file: "
        )
        while text := self._reply(question).strip():
            try:
                put(self.document, *parse_option(text))
            except SettingsError as error:
                self._say(str(error))
            else:
                return True
        return False

    def _cluster(self) -> str:
        models = clusters()
        kind = look_up(self.document, ("cluster", "kind"))
        if kind is None:
            self._say(f"\n{Settings.model_fields['cluster'].description} {_one_of(models)}")
        while kind not in models:
            kind = self._reply("cluster.kind: ").strip()
            if kind not in models:
                problem = (
                    f"'{kind}' is not a kind of cluster" if kind else "no kind of cluster was typed"
                )
                self._say(f"cluster.kind: {problem}; {known_names(kind, models)}")
        put(self.document, ("cluster", "kind"), kind)
        for name, field in models[kind].model_fields.items():
            # Also ask for a list of machines, because it cannot be derived from the nodesets.
            asked = (
                field.is_required() or name == "context" or get_origin(field.annotation) is tuple
            )
            if name != "kind" and asked:
                self.ask(("cluster",), models[kind], name)
        return str(kind)

    def _nodesets(self) -> None:
        for place in range(100):
            at = ("nodesets", str(place))
            if place and look_up(self.document, at) is None:
                self._say("\nDo you want to add another nodeset?")
                if self._reply("yes or no [no]: ").strip().lower() not in ("y", "yes"):
                    return
            for name, field in Nodeset.model_fields.items():
                if field.is_required():
                    self.ask(at, Nodeset, name)
            if look_up(self.document, (*at, "gpus")) is None:
                self._say("\nDo the nodes of this nodeset have GPUs?")
                if self._reply("yes or no [no]: ").strip().lower() in ("y", "yes"):
                    for name in ("type", "count"):
                        self.ask((*at, "gpus"), Gpus, name)

    def _machines(self, cluster: type[BaseModel]) -> None:
        """For clusters in a cloud, ask which machines each nodeset uses."""
        for name, field in cluster.model_fields.items():
            for machines in _models_by_nodeset(field.annotation):
                for nodeset in look_up(self.document, ("nodesets",)) or ():
                    for part, known in machines.model_fields.items():
                        if known.is_required():
                            self.ask(("cluster", name, nodeset["name"]), machines, part)


def _models_by_nodeset(annotation: Any) -> Iterator[type[BaseModel]]:
    """If the annotation is a mapping from nodesets to models, yield the model of its values."""
    if get_origin(annotation) is dict:
        _, value = get_args(annotation)
        if isinstance(value, type) and issubclass(value, BaseModel):
            yield value


def clusters() -> dict[str, type[BaseModel]]:
    """Return the pydantic models of clusters, by the value of `cluster.kind`."""
    models = get_args(Settings.model_fields["cluster"].annotation)
    return {get_args(model.model_fields["kind"].annotation)[0]: model for model in models}


def _help(field: FieldInfo) -> str:
    """Return the settings' description of a field, with its choices."""
    text = " ".join((field.description or "").split())
    if get_origin(field.annotation) is not Literal:
        return text
    return f"{text} {_one_of(get_args(field.annotation))}".strip()


def _one_of(choices: Iterable[str]) -> str:
    return f"One of: {', '.join(choices)}."


def _understood(field: FieldInfo, text: str) -> Any:
    """Return the value that an answer means: YAML, else plain text, else the items of a list.

    Return the first of these readings that the field accepts.
    """
    readings: list[Any] = [*_yaml(text), text, *_yaml(f"[{text}]")]
    # If no reading is valid, return the one with the most useful error.
    refused = readings[-1] if get_origin(field.annotation) is tuple else text
    return next((value for value in readings if not _problems(field, value)), refused)


def _yaml(text: str) -> list[Any]:
    """Parse a text as YAML; return a list with its value, or an empty list if it is not YAML."""
    try:
        return [parse(text)]
    except StackFileError:
        return []


def _problems(field: FieldInfo, value: Any) -> list[ErrorDetails]:
    """Return why the field rejects a value; the list is empty if the field accepts it."""
    kind: Any = field.annotation
    if field.metadata:
        kind = Annotated[(kind, *field.metadata)]
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


# --- The file ------------------------------------------------------------------------------------


def allowed(settings: Settings) -> Document:
    """Return the setting `policy` for a new stack, from an example stack in the repository.

    Leave out exceptions that the new stack does not need, because the policy pack would report them
    as unused.
    """
    is_local = settings.cluster.kind == "local"
    example = yaml.safe_load((ROOT / f"Pulumi.{'dev' if is_local else 'gpu'}.yaml").read_text())
    found: Document = example["config"][f"{PROJECT}:policy"]
    bundled = settings.monitoring.kind == "bundled"
    grafana = settings.monitoring.bundled.grafana
    needed = {
        "limits": is_local or settings.login.limits != Limits(),
        "protected-data": not settings.protect_data,
        "images": bundled and grafana.enabled and grafana.image == type(grafana)().image,
    }
    mounts = settings.cluster.kind == "nebius" and not settings.jail.is_elsewhere()
    absent = {
        *(["machines-exporter"] if settings.monitoring.kind == "none" else []),
        *(["rebooter-agent"] if "reboot" not in settings.reconciler.steps() else []),
    }
    exceptions = {
        rule: present
        for rule, whys in found["exceptions"].items()
        if needed.get(rule, True)
        and (present := {name: why for name, why in whys.items() if name not in absent})
    }
    exceptions["non-root"] |= dict.fromkeys(_pods_with_sssd(settings), _SSSD)
    return {
        **({"host_paths": found["host_paths"]} if mounts else {}),
        "exceptions": exceptions,
    }


def _pods_with_sssd(settings: Settings) -> list[str]:
    """Return the workloads that run as root only because of sssd.

    sssd looks up the users of a directory, and starts only as root.
    """
    if not settings.directory:
        return []
    return [
        *(["accounting-slurmdbd", "accounts-apply"] if settings.accounting.enabled else []),
        "controller-slurmctld",
        *([] if settings.controller.standby else ["controller-placeholder-pod"]),
        *(["exporter-agent"] if settings.monitoring.exporter.enabled else []),
        "rest-slurmrestd",
    ]


def written(document: Document) -> str:
    """Return the text of the stack file."""
    config = {f"{PROJECT}:{key}": value for key, value in document.items()}
    return HEAD + yaml.safe_dump({"config": config}, sort_keys=False, allow_unicode=True, width=100)


def read(name: str, document: Document) -> Settings:
    """Return the settings of a stack with this document. Raises `SettingsError`."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"Pulumi.{name}.yaml").write_text(written(document))
        return read_stack(name, Path(folder))


def checked(name: str, document: Document, root: Path) -> Settings:
    """Return the settings of a new stack. Raises `SettingsError`."""
    settings = read(name, document)
    check_keys(name, settings, root)
    return settings


def check_keys(name: str, settings: Settings, root: Path) -> None:
    """Raise `SettingsError` if a file with an SSH key is missing or invalid.

    Skip the generated key of a local stack, because `make up` creates it later.
    """
    for user in settings.users:
        for file in user.ssh_key_files:
            if file != f".local/{name}/id_ed25519.pub":
                _check_key(f"{PROJECT}:users[{user.name}].ssh_key_files", root / file)


def _check_key(key: str, path: Path) -> None:
    try:
        parse_ssh_key(path.read_text().strip())
    except OSError as error:
        raise SettingsError(
            f"{key}: cannot read {path}: {error.strerror}; name a file with a public SSH key"
        ) from None
    except ValueError as error:
        raise SettingsError(f"{key}: {path}: {error}") from None


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Write the stack file and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m local.new_stack", description=__doc__)
    parser.add_argument("name", help="name of the new stack, such as my-lab")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a value without a question; may be repeated",
    )
    options = parser.parse_args(arguments)
    path = root / f"Pulumi.{options.name}.yaml"
    document: Document = {}
    try:
        if not _NAME.fullmatch(options.name):
            raise SettingsError(
                f"name '{options.name}': invalid stack name; use at most 63 lower-case letters,"
                " digits and hyphens, begin with a letter, and do not end with a hyphen, such as"
                " my-lab"
            )
        if path.exists():
            raise SettingsError(
                f"{path.name}: already exists; choose another name, or edit this file by hand"
            )
        for option in options.set:
            put(document, *parse_option(option))
        interview = Interview(document, input, print) if sys.stdin.isatty() else None
        if interview:
            interview.stack(options.name)
        document.setdefault("cluster_name", options.name)
        if look_up(document, ("cluster", "kind")) == "metal":
            # Install Cilium, because nodes need a network plugin to become ready, and kubeadm
            # installs none.
            document.setdefault("network", {"cilium": {}})
        check = partial(checked, options.name, document, root)
        try:
            settings = interview.correct(check) if interview else check()
        except SettingsError:
            if interview:
                _print_answers(document)
            raise
        document.setdefault("policy", allowed(settings))
        with path.open("x") as file:
            file.write(written(document))
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (EOFError, KeyboardInterrupt):
        _print_answers(document)
        print(
            f"stopped: {path.name} was not written; to reuse the answers so far, copy them from the"
            " lines above",
            file=sys.stderr,
        )
        return 1
    print(f"wrote {path.name}; run `make preview STACK={options.name}` to see what it deploys")
    return 0


def _print_answers(document: Document) -> None:
    """Print the answers, so that the user can reuse them."""
    print(f"\n{written(document)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The program run against a recording monitor: what it would ask of any engine."""

import asyncio
import base64
import functools
import gc
import hashlib
import json
import os
import runpy
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pulumi
import pytest
from google.protobuf import json_format, struct_pb2
from pulumi import _types as sdk_types
from pulumi.runtime import known_types, mocks, rpc, stack
from pulumi.runtime import resource as sdk_resource
from pulumi.runtime.proto import resource_pb2, source_pb2
from pulumi.runtime.settings import SETTINGS

from engine.values import SIGNATURE
from local.paths import ROOT
from tests.support.once import once
from tests.support.stack import config

CLUSTER_IP = "192.0.2.1"
"""The address that each Service gets."""
SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"
_LONGEST_NAME = 255
"""Bytes in the name of a file, by Linux; a longer text names none."""

_MADE: dict[str, dict[str, Any]] = {
    "nebius:index/mk8sV1Cluster:Mk8sV1Cluster": {
        "status": {
            "controlPlane": {
                "auth": {"clusterCaCertificate": "-----BEGIN CERTIFICATE-----"},
                "endpoints": {"publicEndpoint": "https://192.0.2.9:443"},
            }
        }
    },
    "eks:index:Cluster": {"kubeconfigJson": "{}", "clusterSecurityGroupId": "sg-machines"},
    "aws:iam/role:Role": {"arn": "arn:aws:iam::1:role/r", "name": "r"},
    "aws:fsx/lustreFileSystem:LustreFileSystem": {"dnsName": "fs.lab", "mountName": "m"},
}
"""What clouds say of what they made, by type."""
AUTHORITY = """-----BEGIN CERTIFICATE-----
MIHWMIGJoAMCAQICAQEwBQYDK2VwMBUxEzARBgNVBAMMCmt1YmVybmV0ZXMwHhcN
MjYwMTAxMDAwMDAwWhcNMzYwMTAxMDAwMDAwWjAVMRMwEQYDVQQDDAprdWJlcm5l
dGVzMCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbgw
BQYDK2VwA0EAPduNnZF88Wk2LVtyI9zpZ68Oo0hDScLp4fAIDMyA+LS5MR/Rcc01
QmoU34PpFlKqUYVo+qSnJqBTQzRyCMxfDA==
-----END CERTIFICATE-----
"""
"""Of a cluster; the private half is the bytes 0 to 31."""
TOKEN = "abcdef.0123456789abcdef"
KUBECONFIG = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "users": [{"name": "lab", "user": {"token": "no secret"}}],
        "clusters": [
            {
                "name": "lab",
                "cluster": {
                    "server": "https://192.0.2.10:6443",
                    "certificate-authority-data": base64.b64encode(AUTHORITY.encode()).decode(),
                },
            }
        ],
    }
)
"""What the commands print that ask a control plane for a token, and for the way to it."""


@dataclass(frozen=True)
class Registration:
    """One raw RegisterResource request."""

    urn: str
    type: str
    name: str
    parent: str
    custom: bool
    protect: bool
    deleted_first: bool
    """Where another takes its place, this one goes before that comes."""
    provider: str
    providers: dict[str, str]
    """By package, those that a component hands on."""
    inputs: dict[str, Any]
    """As on the wire: secrets are still wrapped."""
    dependencies: frozenset[str]
    property_dependencies: dict[str, tuple[str, ...]]
    """By name of an input, the resources that it comes from, sorted: they come in any order."""


class _Unasked(mocks.Mocks):
    """What set_mocks requires; the recorder answers by itself."""

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], None]:
        raise NotImplementedError(args.token)

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        raise NotImplementedError(args.typ)


def _outputs(request: Any) -> struct_pb2.Struct:
    """A resource comes out as it went in; random text and addresses are always the same."""
    outputs = struct_pb2.Struct()
    outputs.CopyFrom(request.object)
    if request.type.startswith("random:"):
        outputs["result"] = {SIGNATURE: SECRET_SIGNATURE, "value": "always the same"}
    outputs.update(_MADE.get(request.type, {}))
    if request.type == "command:remote:Command":
        outputs["stdout"] = KUBECONFIG if request.name.endswith("-kubeconfig") else TOKEN
    if request.type == "kubernetes:core/v1:Service" and "clusterIP" not in outputs["spec"]:
        outputs["spec"]["clusterIP"] = CLUSTER_IP
    return outputs


class _Recorder(mocks.MockMonitor):
    def __init__(self) -> None:
        super().__init__(_Unasked())
        self.requests: list[Registration] = []
        self.outputs_registered: set[str] = set()
        self._made: dict[str, Any] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802  # the protocol's name
        urn = self.make_urn(request.parent, request.type, request.name)
        self.requests.append(
            Registration(
                urn=urn,
                type=request.type,
                name=request.name,
                parent=request.parent,
                custom=request.custom,
                protect=request.protect,
                deleted_first=request.deleteBeforeReplace,
                provider=request.provider,
                providers=dict(request.providers),
                inputs=json_format.MessageToDict(request.object),
                dependencies=frozenset(request.dependencies),
                property_dependencies={
                    key: tuple(sorted(found.urns))
                    for key, found in request.propertyDependencies.items()
                },
            )
        )
        self._made[urn] = resource_pb2.RegisterResourceResponse(
            urn=urn, id=f"{request.name}-id", object=_outputs(request)
        )
        return self._made[urn]

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        """Find a resource that an output refers to. The program calls no function of a provider."""
        assert request.tok == "pulumi:pulumi:getResource", request.tok
        made = self._made[request.args["urn"]]
        found = struct_pb2.Struct()
        found.update({"urn": made.urn, "id": made.id, "state": {}})
        found["state"].MergeFrom(made.object)
        return resource_pb2.ResourceInvokeResponse(**{"return": found})

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        self.outputs_registered.add(request.urn)
        return super().RegisterResourceOutputs(request)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Graph:
    resources: tuple[Registration, ...]
    outputs_registered: frozenset[str]

    def of_type(self, type_: str) -> list[Registration]:
        """By name: in what order resources are registered is chance."""
        found = [resource for resource in self.resources if resource.type == type_]
        return sorted(found, key=lambda resource: resource.name)

    def one(self, name: str) -> Registration:
        (found,) = [resource for resource in self.resources if resource.name == name]
        return found


def templates(graph: Graph) -> dict[str, dict[str, Any]]:
    """Templates of the pods, by the logical name of what makes them."""
    specs = {resource.name: resource.inputs.get("spec", {}) for resource in graph.resources}
    makers = {
        name: spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec
        for name, spec in specs.items()
    }
    return {name: maker["template"] for name, maker in makers.items() if "template" in maker}


def _program(root: Path) -> None:
    runpy.run_path(str(root / "__main__.py"))


def record(
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, str] | None = None,
    root: Path = ROOT,
    *,
    anew: bool = False,
) -> Graph:
    """Runs the unmodified program to its end and returns all that it registered.

    Below `root` it finds the files that the settings name. Equal settings are recorded once in a
    run. `anew` records them again, and answers requests from threads, in any order.
    """
    given = config() if values is None else values

    def recorded() -> Graph:
        monkeypatch.setattr(pulumi.runtime, "get_config_env", lambda: given)
        return record_program(partial(_program, root), threads=anew)

    return recorded() if anew else once(_key(given, root), recorded)


def _key(values: dict[str, str], root: Path) -> str:
    """All that a recording depends on: settings, the files that they name, the environment."""
    files = {
        text: hashlib.sha256((root / text).read_bytes()).hexdigest()
        for value in values.values()
        for text in _texts(value)
        if len(text) < _LONGEST_NAME and (root / text).is_file()
    }
    environment = {
        name: text
        for name, text in os.environ.items()
        if name == "KUBECONFIG" or name.startswith("PULUMI_")
    }
    return json.dumps([values, files, environment], sort_keys=True)


def _texts(value: str) -> Iterator[str]:
    """All texts in a value of the configuration, which is a text or JSON."""
    yield value
    try:
        found = [json.loads(value)]
    except ValueError:
        return
    for one in found:
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict | list):
            found += one.values() if isinstance(one, dict) else one


def record_program(program: Callable[[], None], *, threads: bool = False) -> Graph:
    """Runs a program to its end and returns all that it registered.

    Requests are answered at once, in the program's order, by a leaner SDK, or, with `threads`, in
    any order by the whole of it.
    """
    # In a thread with a context of its own, no recording sees another's stack, and Pulumi finds
    # few frames to describe: it sends the whole call stack with each resource.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(Context().run, _recorded, program, threads).result()


def _recorded(program: Callable[[], None], threads: bool) -> Graph:
    monitor = _Recorder()
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor() if threads else _AtOnce())
    asyncio.set_event_loop(loop)
    SETTINGS.outputs = set()
    try:
        mocks.set_mocks(_Unasked(), project="slurmstack", stack="test", monitor=monitor)
        with _no_collection(), nullcontext() if threads else _lean_sdk():
            loop.run_until_complete(stack.run_pulumi_func(program))
    finally:
        loop.close()
    return Graph(tuple(monitor.requests), frozenset(monitor.outputs_registered))


class _AtOnce(ThreadPoolExecutor):
    """Answers requests without a thread: the recorder never waits."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def _no_collection() -> Iterator[None]:
    """Spare the garbage collector a third of the time: a recording drops little while it runs."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _lean_sdk() -> Iterator[None]:
    """Spare Pulumi's SDK a third of its work, none of which shows in a recording.

    It describes the call stack of each resource, which the recorder ignores. It asks what the same
    types wrap again and again. Its search for unknown values leaves a cycle of objects each time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sdk_resource, "_get_stack_trace", source_pb2.StackTrace)
        patch.setattr(sdk_types, "unwrap_type", _unwrap_type)
        patch.setattr(rpc, "contains_unknowns", _contains_unknowns)
        yield


_unwrap_type = functools.cache(sdk_types.unwrap_type)


def _contains_unknowns(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_contains_unknowns(value[key]) for key in value)
    if isinstance(value, list):
        return any(map(_contains_unknowns, value))
    return known_types.is_unknown(value)


def pod(graph: Graph, maker: str) -> dict[str, Any]:
    """Spec of the pods of one maker."""
    spec: dict[str, Any] = templates(graph)[maker]["spec"]
    return spec


def container(graph: Graph, maker: str) -> dict[str, Any]:
    """The only one of them."""
    (only,) = pod(graph, maker)["containers"]
    return dict(only)


def environment(graph: Graph, maker: str) -> dict[str, str]:
    """What that one is told, all of it in plain text."""
    return {one["name"]: one["value"] for one in container(graph, maker)["env"]}


def before(graph: Graph, name: str) -> set[str]:
    """Names of all resources that come before one, directly or not."""
    found: set[str] = set()
    asked = [name]
    while asked:
        direct = {urn.rsplit("::", 1)[1] for urn in graph.one(asked.pop()).dependencies}
        asked += direct - found
        found |= direct
    return found

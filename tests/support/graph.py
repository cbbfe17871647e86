"""Record the resources that the program registers with an engine; no engine runs."""

import asyncio
import base64
import functools
import gc
import hashlib
import json
import os
import runpy
from collections.abc import Callable, Iterator, Mapping
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
from pulumi.runtime.settings import SETTINGS, get_root_resource

from components import cluster as clusters
from components.settings import Settings
from engine.values import SIGNATURE
from local.paths import ROOT
from tests.support.once import once
from tests.support.stack import config

CLUSTER_IP = "192.0.2.1"
"""The address that each Service gets."""
LOAD_BALANCER = "192.0.2.2"
"""The address that each load balancer gets."""
NODE_PORT = 31999
"""The port that each Service for clients outside of the cluster gets on each Kubernetes node."""
SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"
_LONGEST_NAME = 255
"""Maximum length of a file name on Linux in bytes; a longer text cannot be a file name."""

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
"""Outputs of cloud resources, by type."""
AUTHORITY = """-----BEGIN CERTIFICATE-----
MIHWMIGJoAMCAQICAQEwBQYDK2VwMBUxEzARBgNVBAMMCmt1YmVybmV0ZXMwHhcN
MjYwMTAxMDAwMDAwWhcNMzYwMTAxMDAwMDAwWjAVMRMwEQYDVQQDDAprdWJlcm5l
dGVzMCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbgw
BQYDK2VwA0EAPduNnZF88Wk2LVtyI9zpZ68Oo0hDScLp4fAIDMyA+LS5MR/Rcc01
QmoU34PpFlKqUYVo+qSnJqBTQzRyCMxfDA==
-----END CERTIFICATE-----
"""
"""Certificate authority of a cluster; its private key is the bytes 0 to 31."""
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
"""Output of the commands that get a token and a kubeconfig from a control plane."""


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
    """Whether the engine deletes this resource before it creates the replacement."""
    provider: str
    providers: dict[str, str]
    """Providers that a component passes to its children, by package."""
    inputs: dict[str, Any]
    """Inputs as sent to the engine, with secrets still wrapped."""
    dependencies: frozenset[str]
    property_dependencies: dict[str, tuple[str, ...]]
    """Resources that each input depends on, sorted because their order is not defined."""


class _Unasked(mocks.Mocks):
    """Mocks that set_mocks requires. They are never called: the recorder answers all requests."""

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], None]:
        raise NotImplementedError(args.token)

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        raise NotImplementedError(args.typ)


def _outputs(request: Any) -> struct_pb2.Struct:
    """Return a resource's inputs as outputs, with constant random texts and addresses."""
    outputs = struct_pb2.Struct()
    outputs.CopyFrom(request.object)
    if request.type.startswith("random:"):
        outputs["result"] = {SIGNATURE: SECRET_SIGNATURE, "value": "always the same"}
    outputs.update(_MADE.get(request.type, {}))
    if request.type == "command:remote:Command":
        outputs["stdout"] = KUBECONFIG if request.name.endswith("-kubeconfig") else TOKEN
    if request.type == "kubernetes:core/v1:Service":
        _complete_service(outputs)
    return outputs


def _complete_service(service: struct_pb2.Struct) -> None:
    """Add what Kubernetes adds to a Service."""
    spec = service["spec"]
    kind = dict(spec.items()).get("type", "ClusterIP")
    if "clusterIP" not in spec:
        spec["clusterIP"] = CLUSTER_IP
    if kind != "ClusterIP":
        for port in spec["ports"]:
            if "nodePort" not in port:
                port["nodePort"] = NODE_PORT
    if kind == "LoadBalancer":
        service.update({"status": {"loadBalancer": {"ingress": [{"ip": LOAD_BALANCER}]}}})


class Recorder(mocks.MockMonitor):
    """Answers the requests of a program in place of an engine, and records the requests."""

    def __init__(self) -> None:
        super().__init__(_Unasked())
        self.requests: list[Registration] = []
        self.outputs_registered: dict[str, dict[str, Any]] = {}
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
        """Return a resource that an output refers to.

        The SDK sends no other Invoke request: the program calls no function of a provider.
        """
        assert request.tok == "pulumi:pulumi:getResource", request.tok
        made = self._made[request.args["urn"]]
        found = struct_pb2.Struct()
        found.update({"urn": made.urn, "id": made.id, "state": {}})
        found["state"].MergeFrom(made.object)
        return resource_pb2.ResourceInvokeResponse(**{"return": found})

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        self.outputs_registered[request.urn] = json_format.MessageToDict(request.outputs)
        return super().RegisterResourceOutputs(request)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Graph:
    resources: tuple[Registration, ...]
    outputs_registered: Mapping[str, dict[str, Any]]
    """Outputs of components and of the stack, by URN."""

    @property
    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs."""
        (found,) = (
            outputs
            for urn, outputs in self.outputs_registered.items()
            if "::pulumi:pulumi:Stack::" in urn
        )
        return found

    def of_type(self, type_: str) -> list[Registration]:
        """Return resources sorted by name, because the order of registration is random."""
        found = [resource for resource in self.resources if resource.type == type_]
        return sorted(found, key=lambda resource: resource.name)

    def one(self, name: str) -> Registration:
        (found,) = [resource for resource in self.resources if resource.name == name]
        return found


def templates(graph: Graph) -> dict[str, dict[str, Any]]:
    """Return pod templates by the logical name of the resource that creates the pods."""
    specs = {
        resource.name: resource.inputs
        if "template" in resource.inputs
        else resource.inputs.get("spec", {})
        for resource in graph.resources
    }
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
    """Run the unmodified program to its end, and return all its registrations.

    `root` contains the files that the settings name. Equal settings are recorded only once in a run
    of pytest. With `anew`, they are recorded again, and threads answer the requests in any order.
    """
    given = config() if values is None else values

    def recorded() -> Graph:
        monkeypatch.setattr(pulumi.runtime, "get_config_env", lambda: given)
        return record_program(partial(_program, root), threads=anew)

    return recorded() if anew else once(_key(given, root), recorded)


def _key(values: dict[str, str], root: Path) -> str:
    """Return all inputs of a recording: settings, the files that they name, the environment."""
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
    """Yield all texts in a configuration value, which is plain text or JSON."""
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
    """Run a program to its end, and return all its registrations.

    By default, the recorder answers requests at once, in the program's order, and the SDK skips
    work (`_lean_sdk`). With `threads`, threads answer in any order, and the SDK is complete.
    """
    # Record in a separate thread with its own context, where a recording cannot see the Pulumi
    # stack of another recording. The call stack is also shorter there, and Pulumi sends the call
    # stack with each resource.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(Context().run, _recorded, program, threads).result()


def record_cluster(settings: Settings) -> Graph:
    """Record only the cluster and its drivers, which is faster than the whole program."""

    def program() -> None:
        cluster = clusters.make(settings, "test")
        opts = pulumi.ResourceOptions(provider=clusters.provider(cluster))
        clusters.install_drivers("equipment", settings, cluster, (), opts)

    return record_program(program)


def _recorded(program: Callable[[], None], threads: bool) -> Graph:
    monitor = Recorder()
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor() if threads else _AtOnce())
    asyncio.set_event_loop(loop)
    SETTINGS.outputs = set()
    try:
        mocks.set_mocks(_Unasked(), project="slurmstack", stack="test", monitor=monitor)
        with _no_collection(), nullcontext() if threads else _lean_sdk():
            loop.run_until_complete(stack.run_pulumi_func(partial(_exporting, program)))
    finally:
        loop.close()
    return Graph(tuple(monitor.requests), monitor.outputs_registered)


def _exporting(program: Callable[[], None]) -> None:
    """Run a program and register its exports, as its language host does."""
    program()
    root = get_root_resource()
    if isinstance(root, stack.Stack):
        root.register_outputs(root.outputs)


class _AtOnce(ThreadPoolExecutor):
    """Answer requests without a thread: the recorder never waits."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection, which takes a third of the time and frees little here."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _lean_sdk() -> Iterator[None]:
    """Skip work that takes a third of the SDK's time, but does not affect a recording.

    The SDK describes the call stack of each resource, but the recorder ignores this description.
    The SDK unwraps the same types again and again. Its search for unknown values leaves a reference
    cycle each time.
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


def opened(value: Any) -> Any:
    """Return a value without the wrappers of secrets, at any depth."""
    if isinstance(value, dict) and SECRET_SIGNATURE in value.values():
        return opened(value["value"])
    if isinstance(value, dict):
        return {key: opened(item) for key, item in value.items()}
    return [opened(item) for item in value] if isinstance(value, list) else value


def pod(graph: Graph, maker: str) -> dict[str, Any]:
    """Return the pod spec of the resource `maker`."""
    spec: dict[str, Any] = templates(graph)[maker]["spec"]
    return spec


def container(graph: Graph, maker: str) -> dict[str, Any]:
    """Return the only container of the pods of `maker`."""
    (only,) = pod(graph, maker)["containers"]
    return dict(only)


def environment(graph: Graph, maker: str) -> dict[str, str]:
    """Return the variables of the only container of `maker`; all must have plain values."""
    return {one["name"]: one["value"] for one in container(graph, maker)["env"]}


def before(graph: Graph, name: str) -> set[str]:
    """Return the names of all direct and indirect dependencies of a resource."""
    found: set[str] = set()
    asked = [name]
    while asked:
        direct = {urn.rsplit("::", 1)[1] for urn in graph.one(asked.pop()).dependencies}
        asked += direct - found
        found |= direct
    return found

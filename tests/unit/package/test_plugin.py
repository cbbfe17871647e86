"""The built package in another project: imports, and the plugin that Pulumi's engine starts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import (
    engine_pb2_grpc,
    provider_pb2,
    provider_pb2_grpc,
    resource_pb2_grpc,
)

from components.conventions import PROJECT
from images import tags
from package import backend
from package.cluster import TYPE
from package.schema import schema
from package.typeddicts import ARGUMENTS, text
from tests.support.graph import Recorder

HANDLED = ("GetDeploymentInfo", "Invoke", "RegisterResource", "RegisterResourceOutputs")
SERVE = f"from {PROJECT}.plugin import Provider; from pulumi import provider; "
SERVE += "provider.main(Provider('1.2.3'), [])"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the built package."""
    folder = tmp_path_factory.mktemp("built")
    backend.stage(folder)
    return folder


def python(built: Path, program: str) -> list[str]:
    """Return the command that runs a program with the package, but without this checkout."""
    return ["env", f"PYTHONPATH={built}", sys.executable, "-P", "-c", program]


def test_package_imports_only_its_own_modules(built: Path, tmp_path: Path) -> None:
    program = f"""
import sys, {PROJECT}, {PROJECT}.plugin
print([name for name in sys.modules if name in {(*backend.PARTS, "images", "package")}])
from {PROJECT}.images import tags
print(tags.reference("worker"))
"""
    done = subprocess.run(python(built, program), cwd=tmp_path, capture_output=True, text=True)

    assert done.stdout.splitlines() == ["[]", tags.reference("worker")], done.stderr


@contextmanager
def plugin(built: Path, folder: Path, engine: str) -> Iterator[Any]:
    """Start the plugin as an engine does, in a project's folder."""
    command = [*python(built, SERVE), engine]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            address = f"127.0.0.1:{int(process.stdout.readline())}"
            with grpc.insecure_channel(address) as channel:
                yield provider_pb2_grpc.ResourceProviderStub(channel)
        finally:
            process.terminate()


class Engine(engine_pb2_grpc.EngineServicer):
    def Log(self, request: Any, context: Any) -> empty_pb2.Empty:  # noqa: N802
        return empty_pb2.Empty()


@contextmanager
def engine(recorder: Recorder) -> Iterator[str]:
    """Start a fake engine that passes requests to the recorder, and yield its address."""
    server = grpc.server(ThreadPoolExecutor())
    servicer = resource_pb2_grpc.ResourceMonitorServicer()
    for name in HANDLED:
        answer = getattr(recorder, name)
        setattr(servicer, name, lambda request, _, answer=answer: answer(request))
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(servicer, server)
    engine_pb2_grpc.add_EngineServicer_to_server(Engine(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield address
    finally:
        server.stop(None)


def construct(stub: Any, address: str, inputs: dict[str, Any]) -> Any:
    given = struct_pb2.Struct()
    given.update(inputs)
    return stub.Construct(
        provider_pb2.ConstructRequest(
            project="other",
            stack="test",
            monitorEndpoint=address,
            type=TYPE,
            name="lab",
            inputs=given,
        )
    )


def test_engine_can_create_a_cluster_through_the_plugin(built: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    nodesets = [{"name": "cpu", "replicas": 2, "cpus": 4, "memory": "8GiB"}]

    with engine(recorder) as address, plugin(built, tmp_path, address) as stub:
        found = json.loads(stub.GetSchema(provider_pb2.GetSchemaRequest()).schema)
        answer = construct(stub, address, {"cluster_name": "lab", "nodesets": nodesets})
        nodesets[0]["replicas"] = -1
        with pytest.raises(grpc.RpcError) as refused:
            construct(stub, address, {"cluster_name": "lab", "nodesets": nodesets})

    assert found == schema("1.2.3")
    (status,) = (each.value for each in refused.value.trailing_metadata())
    assert b"nodesets[cpu].replicas" in status
    assert b"-1: expected at least 0" in status
    assert answer.state["rest_url"] == "http://rest.slurm.svc:6820"
    created = {request.name: request for request in recorder.requests}
    assert created["lab-nodeset-cpu-slurmd"].inputs["spec"]["replicas"] == 2


def test_generated_types_of_the_arguments_are_current() -> None:
    assert ARGUMENTS.read_text() == text(), "run `make schema`"

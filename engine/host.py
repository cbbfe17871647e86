"""The gRPC services for a Pulumi program: Pulumi's ResourceMonitor and Engine.

Source: the protocol's files (proto/pulumi/resource.proto, engine.proto). If the program uses an
unsupported feature, the engine returns an error that names the feature, and the SDK shows it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, resource_pb2, resource_pb2_grpc

from engine.aliases import Alias
from engine.deployment import Deployment
from engine.errors import EngineError
from engine.events import Display, Severity
from engine.folders import temporary_folder
from engine.planning import Goal
from engine.state import StoredResource
from engine.values import Properties, Value, from_struct, to_struct
from engine.work import Options, Stopped, describe_bug

T = TypeVar("T")

# Output values are not supported: the SDK sends dependencies in separate fields instead.
_FEATURES: Final = {
    "parameterization": resource_pb2.RESOURCE_MONITOR_FEATURE_PARAMETERIZATION,
    "secrets": resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    "resourceReferences": resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    "aliasSpecs": resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
    "deletedWith": resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
    "replaceWith": resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACE_WITH,
    "replacementTrigger": resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACEMENT_TRIGGER,
}
_SEVERITIES: Final = {
    engine_pb2.INFO: Severity.INFO,
    engine_pb2.WARNING: Severity.WARNING,
    engine_pb2.ERROR: Severity.ERROR,
}
_GET_RESOURCE: Final = "pulumi:pulumi:getResource"
_NO_LIMIT: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration like ``5m`` or ``1h30m``. Raises EngineError."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise EngineError(f"customTimeouts: {text!r}: expected a duration such as 90s, 5m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def goal_of(request: Any, *, preview: bool = False) -> Goal:
    """Return the goal of a RegisterResourceRequest. Raises EngineError for unsupported features.

    In a preview, remote components and parameterized packages are allowed too. For these, the
    engine makes the plan from the inputs alone.
    """
    for name, asked in (
        ("remote components", request.remote and not preview),
        ("import", request.importId),
        ("transforms", request.transforms),
        ("parameterized packages", request.packageRef and not preview),
        ("state migrations", request.state_migrations),
    ):
        if asked:
            raise EngineError(
                f"{name}: not supported by this engine; deploy this stack with the `pulumi` command"
            )
    dependencies = tuple(sorted(request.dependencies))
    inputs = _properties(request.object)
    of_properties = {
        key: tuple(sorted(value.urns)) for key, value in request.propertyDependencies.items()
    }
    if dependencies and not of_properties:
        of_properties = dict.fromkeys(inputs, dependencies)
    defined = request.deleteBeforeReplaceDefined or request.deleteBeforeReplace
    return Goal(
        type=request.type,
        name=request.name,
        custom=request.custom,
        inputs=inputs,
        parent=request.parent,
        provider=request.provider,
        version=request.version,
        dependencies=dependencies,
        property_dependencies=of_properties,
        protect=request.protect if request.HasField("protect") else None,
        retain_on_delete=request.retainOnDelete if request.HasField("retainOnDelete") else None,
        deleted_with=request.deletedWith,
        replace_with=tuple(request.replace_with),
        replacement_trigger=_trigger(request),
        delete_before_replace=request.deleteBeforeReplace if defined else None,
        ignore_changes=tuple(request.ignoreChanges),
        replace_on_changes=tuple(request.replaceOnChanges),
        additional_secret_outputs=tuple(sorted(request.additionalSecretOutputs)),
        aliases=(
            *(Alias(urn=urn) for urn in request.aliasURNs),
            *(_alias(alias) for alias in request.aliases),
        ),
        custom_timeouts={
            name: parse_duration(text)
            for name in ("create", "update", "delete")
            if (text := getattr(request.customTimeouts, name))
        },
    )


def _alias(alias: Any) -> Alias:
    if alias.WhichOneof("alias") == "urn":
        return Alias(urn=alias.urn)
    spec = alias.spec
    return Alias(
        name=spec.name,
        type=spec.type,
        stack=spec.stack,
        project=spec.project,
        parent=spec.parentUrn,
        no_parent=spec.noParent,
    )


def _trigger(request: Any) -> Value:
    if not request.HasField("replacement_trigger"):
        return None
    holder = struct_pb2.Struct()
    holder.fields["trigger"].CopyFrom(request.replacement_trigger)
    return from_struct(holder)["trigger"]


def _properties(struct: Any) -> Properties:
    try:
        return from_struct(struct)
    except ValueError as error:
        raise EngineError(str(error)) from error


async def _refuse(context: Any, reason: str) -> NoReturn:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, reason)
    raise AssertionError("abort returned")


class Monitor(resource_pb2_grpc.ResourceMonitorServicer):
    """gRPC service that passes the program's requests to the deployment."""

    def __init__(self, deployment: Deployment, options: Options, display: Display) -> None:
        self._deployment = deployment
        self._options = options
        self._display = display
        self.finished = False
        """Whether the program has ended and registered everything."""
        self._running: set[asyncio.Task[Any]] = set()

    async def idle(self) -> None:
        """Wait until all requests of the program are finished."""
        while self._running:
            await asyncio.wait(self._running)

    async def _do(self, context: Any, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the work, or report that the deployment has stopped."""
        # Shield the work: an ending program cancels its requests, but the work must finish.
        task = asyncio.create_task(self._guarded(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        results = await asyncio.shield(task)
        if not results:
            # The SDK stops without a message when it receives this status.
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the deployment has stopped")
        return results[0]

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, T]]) -> list[T]:
        """Return the result in a list. If there is an error, show it and return an empty list."""
        try:
            return [await work()]
        except Stopped:
            pass
        except EngineError as error:
            self._deployment.fail(str(error))
        except Exception as error:
            self._deployment.fail(describe_bug(error))
        return []

    async def GetDeploymentInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return resource_pb2.DeploymentInfo(
            project=self._options.project,
            stack=self._options.stack,
            organization="organization",
            config=dict(self._options.config),
            dryRun=self._options.preview,
            parallel=self._options.parallel,
            supportedFeatures=list(_FEATURES.values()),
        )

    async def SupportsFeature(self, request: Any, context: Any) -> Any:  # noqa: N802
        return resource_pb2.SupportsFeatureResponse(hasSupport=request.id in _FEATURES)

    async def RegisterPackage(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return a name for a parameterized package; see `goal_of`."""
        return resource_pb2.RegisterPackageResponse(ref=request.parameterization.name)

    async def RegisterResource(self, request: Any, context: Any) -> Any:  # noqa: N802
        async def register() -> StoredResource:
            # Stop here after the first error: later requests must not add more error lines.
            self._deployment.go_on()
            try:
                goal = goal_of(request, preview=self._options.preview)
            except EngineError as error:
                raise EngineError(f"{request.type} {request.name}: {error}") from error
            return await self._deployment.register(goal)

        resource = await self._do(context, register)
        outputs = resource.outputs if resource.custom else resource.inputs
        return resource_pb2.RegisterResourceResponse(
            urn=resource.urn,
            id=resource.id,
            object=to_struct(outputs, keep_secrets=request.acceptSecrets),
        )

    async def RegisterResourceOutputs(self, request: Any, context: Any) -> Any:  # noqa: N802
        async def register() -> None:
            await self._deployment.register_outputs(request.urn, _properties(request.outputs))

        await self._do(context, register)
        return empty_pb2.Empty()

    async def ReadResource(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Read an existing resource that this stack does not manage."""

        async def read() -> StoredResource:
            goal = Goal(
                type=request.type,
                name=request.name,
                custom=True,
                inputs=_properties(request.properties),
                parent=request.parent,
                provider=request.provider,
                version=request.version,
                dependencies=tuple(sorted(request.dependencies)),
                additional_secret_outputs=tuple(sorted(request.additionalSecretOutputs)),
            )
            return await self._deployment.read(goal, request.id)

        resource = await self._do(context, read)
        return resource_pb2.ReadResourceResponse(
            urn=resource.urn,
            properties=to_struct(resource.outputs, keep_secrets=request.acceptSecrets),
        )

    async def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the state of a resource. Refuse functions of providers."""
        if request.tok != _GET_RESOURCE:
            await _refuse(
                context,
                f"function {request.tok}: this engine does not call functions of providers; deploy"
                " this stack with the `pulumi` command",
            )
        urn = from_struct(request.args).get("urn")
        resource = self._deployment.registered(str(urn))
        if resource is None:
            await _refuse(
                context,
                f"{_GET_RESOURCE}: the program looks up the resource {urn} before it creates this"
                " resource; in the program, create the resource first",
            )
        answer: Properties = {"urn": resource.urn, "id": resource.id, "state": resource.outputs}
        return resource_pb2.ResourceInvokeResponse(**{"return": to_struct(answer)})

    async def Call(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuse methods: only remote components, which are not supported, have methods."""
        await _refuse(
            context,
            f"method {request.tok}: this engine does not run remote components; deploy this stack"
            " with the `pulumi` command",
        )

    async def SignalAndWaitForShutdown(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Record that the program has registered all its resources, and let the program exit.

        The program need not wait for deletions.
        """
        self.finished = True
        return empty_pb2.Empty()


class Engine(engine_pb2_grpc.EngineServicer):
    """gRPC service that receives log lines and returns the stack's URN."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._root = ""

    async def Log(self, request: Any, context: Any) -> Any:  # noqa: N802
        severity = _SEVERITIES.get(request.severity)
        if severity is not None and not request.ephemeral:
            self._display.message(severity, request.message.rstrip(), request.urn)
        elif request.ephemeral:
            self._display.status(request.urn, request.message.rstrip())
        return empty_pb2.Empty()

    async def GetRootResource(self, request: Any, context: Any) -> Any:  # noqa: N802
        return engine_pb2.GetRootResourceResponse(urn=self._root)

    async def SetRootResource(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._root = request.urn
        return engine_pb2.SetRootResourceResponse()


@asynccontextmanager
async def served(monitor: Monitor, engine: Engine) -> AsyncIterator[str]:
    """Serve both services on a socket that only this user can open; yield the address."""
    server = grpc.aio.server(options=_NO_LIMIT)
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(monitor, server)
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
    with temporary_folder() as folder:
        address = f"unix:{folder / 'socket'}"
        server.add_insecure_port(address)
        await server.start()
        try:
            yield address
        finally:
            await server.stop(grace=None)

"""Policy packs in separate processes, called over gRPC.

Source: the protocol's file (proto/pulumi/analyzer.proto) and Pulumi's engine. A pack prints the
port that it serves on. The engine sends it the stack and its config, then each resource before an
operation, and all resources at the end. The deployment stops if a pack does not start, returns an
error, or requires an unsupported feature.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf import empty_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from engine.errors import EngineError
from engine.events import Display
from engine.policies import Level, Pack, Subject, Verdict, Violation
from engine.program import show
from engine.project import PackProject
from engine.urns import name_of
from engine.values import to_struct
from engine.work import Options

_RUNNER: Final = Path(__file__).with_name("packrunner.py")
_START: Final = 60.0  # seconds for a pack's imports
_ANSWER: Final = 60.0  # seconds for one response
_CHANNEL: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # the pack runs on this host
)
_ORGANIZATION: Final = "organization"


@asynccontextmanager
async def started(
    projects: Sequence[PackProject],
    options: Options,
    secret_keys: Sequence[str],
    display: Display,
) -> AsyncIterator[list[Pack]]:
    """Start the packs and yield them when they are ready. Raises EngineError."""
    async with contextlib.AsyncExitStack() as held:
        packs: list[Pack] = []
        for project in projects:
            process = await held.enter_async_context(_process(project, options, display))
            packs.append(await _ready(held, project, process, options, secret_keys))
        yield packs


@asynccontextmanager
async def _process(
    project: PackProject, options: Options, display: Display
) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        str(project.interpreter),
        "-u",
        str(_RUNNER),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=project.root,
        env={
            **os.environ,
            "PULUMI_ORGANIZATION": _ORGANIZATION,
            "PULUMI_PROJECT": options.project,
            "PULUMI_STACK": options.stack,
            "PULUMI_DRY_RUN": str(options.preview).lower(),
            "PULUMI_CONFIG": json.dumps(dict(options.config)),
        },
        # Only the engine handles Ctrl-C.
        start_new_session=True,
    )
    assert process.stderr is not None  # noqa: S101 - all three are pipes
    output = asyncio.create_task(show(process.stderr, display))
    try:
        yield process
    finally:
        # Kill the pack without a grace period: it has nothing to clean up.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await output


async def _ready(
    held: contextlib.AsyncExitStack,
    project: PackProject,
    process: Process,
    options: Options,
    secret_keys: Sequence[str],
) -> _Served:
    port = await _port(project, process)
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_CHANNEL)
    await held.enter_async_context(channel)
    stub = analyzer_pb2_grpc.AnalyzerStub(channel)
    # Discard later output, so that it does not fill the pipe.
    assert process.stdout is not None  # noqa: S101
    drained = asyncio.create_task(_drain(process.stdout))
    held.callback(drained.cancel)
    pack = _Served(project, stub)
    await pack.begin(options, secret_keys)
    return pack


async def _port(project: PackProject, process: Process) -> int:
    assert process.stdout is not None  # noqa: S101
    try:
        line = await asyncio.wait_for(process.stdout.readline(), _START)
    except TimeoutError:
        raise EngineError(
            f"policy pack {project.root}: not ready after {_START:.0f} s; read the output of the"
            " pack, or run without --policy-pack"
        ) from None
    try:
        return int(line)
    except ValueError:
        raise EngineError(
            f"policy pack {project.root}: did not start; fix the error that the pack printed, or"
            " run without --policy-pack"
        ) from None


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


class _Served:
    """A running pack, and the gRPC connection to it."""

    def __init__(self, project: PackProject, stub: Any) -> None:
        self._stub = stub
        self.verdict = Verdict(str(project.root), project.version, project.path)

    async def begin(self, options: Options, secret_keys: Sequence[str]) -> None:
        """Send the stack's name and config, and read the pack's policies. Raises EngineError."""
        await self._configure_stack(options, secret_keys)
        info = await self._ask(self._stub.GetAnalyzerInfo, empty_pb2.Empty())
        self.verdict.name = info.name
        self.verdict.version = self.verdict.version or info.version
        config = {policy.name: _configuration(info, policy) for policy in info.policies}
        for name, chosen in config.items():
            if chosen.enforcementLevel == analyzer_pb2.REMEDIATE:
                raise EngineError(
                    f"policy pack {info.name}: policy {name}: this engine does not support the"
                    " enforcement level `remediate`; set `mandatory`, or deploy this stack with the"
                    " `pulumi` command"
                )
        await self._ask(
            self._stub.Configure, analyzer_pb2.ConfigureAnalyzerRequest(policyConfig=config)
        )

    async def _configure_stack(self, options: Options, secret_keys: Sequence[str]) -> None:
        request = analyzer_pb2.AnalyzerStackConfigureRequest(
            stack=options.stack,
            project=options.project,
            organization=_ORGANIZATION,
            dry_run=options.preview,
            config=dict(options.config),
            config_secret_keys=list(secret_keys),
        )
        try:
            await self._stub.ConfigureStack(request, timeout=_ANSWER)
        except grpc.aio.AioRpcError as error:
            # Older packs lack this method, and read the stack from their environment.
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise self._failed(error) from error

    async def analyze(self, subject: Subject) -> Sequence[Violation]:
        answer = await self._ask(
            self._stub.Analyze,
            analyzer_pb2.AnalyzeRequest(
                urn=subject.urn,
                type=subject.goal.type,
                name=name_of(subject.urn),
                properties=to_struct(subject.properties),
                options=_options(subject),
                provider=_provider(subject),
            ),
        )
        return [_violation(said, subject.urn) for said in answer.diagnostics]

    async def analyze_stack(self, subjects: Sequence[Subject], stack: str) -> Sequence[Violation]:
        known = {subject.urn for subject in subjects}
        answer = await self._ask(
            self._stub.AnalyzeStack,
            analyzer_pb2.AnalyzeStackRequest(resources=[_resource(one) for one in subjects]),
        )
        return [
            _violation(said, said.urn if said.urn in known else stack)
            for said in answer.diagnostics
        ]

    async def _ask(self, method: Any, request: Any) -> Any:
        try:
            return await method(request, timeout=_ANSWER)
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from error

    def _failed(self, error: Any) -> EngineError:
        details = " ".join((error.details() or error.code().name).split())
        return EngineError(
            f"policy pack {self.verdict.name}: evaluation failed: {details}; fix the pack, or run"
            " without --policy-pack"
        )


def _configuration(info: Any, policy: Any) -> Any:
    """Return a policy's level and properties: the defaults, overridden by the pack's config.

    The key ``all`` in this config sets the level of every policy.
    """
    result = analyzer_pb2.PolicyConfig(enforcementLevel=policy.enforcementLevel)
    for key, schema in policy.configSchema.properties.fields.items():
        if "default" in schema.struct_value.fields:
            result.properties.fields[key].CopyFrom(schema.struct_value.fields["default"])
    own: Mapping[str, Any] = info.initialConfig
    if "all" in own:
        result.enforcementLevel = own["all"].enforcementLevel
    if policy.name in own:
        result.enforcementLevel = own[policy.name].enforcementLevel
        result.properties.MergeFrom(own[policy.name].properties)
    return result


def _options(subject: Subject) -> Any:
    goal = subject.goal
    return analyzer_pb2.AnalyzerResourceOptions(
        protect=bool(goal.protect),
        ignoreChanges=goal.ignore_changes,
        deleteBeforeReplace=bool(goal.delete_before_replace),
        deleteBeforeReplaceDefined=goal.delete_before_replace is not None,
        additionalSecretOutputs=goal.additional_secret_outputs,
        customTimeouts=analyzer_pb2.AnalyzerResourceOptions.CustomTimeouts(**goal.custom_timeouts),
        parent=goal.parent,
    )


def _provider(subject: Subject) -> Any:
    if subject.provider is None:
        return None
    provider = subject.provider
    return analyzer_pb2.AnalyzerProviderResource(
        urn=provider.urn,
        type=provider.type,
        name=name_of(provider.urn),
        properties=to_struct(provider.inputs),
    )


def _resource(subject: Subject) -> Any:
    goal = subject.goal
    return analyzer_pb2.AnalyzerResource(
        urn=subject.urn,
        type=goal.type,
        name=name_of(subject.urn),
        properties=to_struct(subject.properties),
        options=_options(subject),
        provider=_provider(subject),
        parent=goal.parent,
        dependencies=goal.dependencies,
        propertyDependencies={
            key: analyzer_pb2.AnalyzerPropertyDependencies(urns=urns)
            for key, urns in goal.property_dependencies.items()
            if urns
        },
    )


def _violation(said: Any, urn: str) -> Violation:
    # Treat every level other than advisory as mandatory.
    advice = said.enforcementLevel == analyzer_pb2.ADVISORY
    level = Level.ADVISORY if advice else Level.MANDATORY
    return Violation(said.policyName, level, said.message, urn)

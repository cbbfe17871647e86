"""The component `SlurmCluster`: Slurm on an existing Kubernetes cluster."""

from asyncio import ensure_future
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from inspect import get_annotations
from pathlib import Path
from typing import Any, Final, cast, get_args

import pulumi

from components import cluster as clusters
from components import stack
from components.composition import SlurmArgs
from components.conventions import PROJECT
from components.exports import exports
from components.settings import Settings, SettingsError, from_values
from package import assumed
from package.arguments import SlurmClusterArgs

TYPE: Final = f"{PROJECT}:index:SlurmCluster"
_NO_CONTEXT: Final = f"{PROJECT}:cluster.context: "
_UNSEEN: Final = {"secure": "unseen"}
"""Placeholder for a Secret's value in the settings; only the Secret itself contains the value."""

Values = Mapping[str, Any]


class SlurmCluster(pulumi.ComponentResource):
    """Slurm on an existing Kubernetes cluster.

    The arguments are the settings of a stack (docs/settings.md) without `cluster`. Additional
    arguments are `kubeconfig` (contents or path of a kubeconfig), `context` (a context in the
    kubeconfig) and `domain` (the domain of the cluster's DNS). Paths of files in the settings are
    relative to the working directory.

    All arguments may contain outputs of other resources. If a preview does not know a value, it
    assumes one that fits, and says so. Only `kubeconfig` and the values of `secrets` may be secret.
    """

    alertmanager_url: pulumi.Output[str | None]
    cluster_name: pulumi.Output[str]
    grafana_url: pulumi.Output[str | None]
    login_address: pulumi.Output[str | None]
    login_host_key: pulumi.Output[str]
    login_port: pulumi.Output[int]
    namespace: pulumi.Output[str]
    nodesets: pulumi.Output[Mapping[str, int]]
    prometheus_url: pulumi.Output[str | None]
    report: pulumi.Output[str]
    rest_url: pulumi.Output[str]

    def __init__(
        self, name: str, args: SlurmClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(TYPE, name, None, opts)
        self._name = name
        given: dict[str, Any] = {**args}
        self._kubeconfig = given.pop("kubeconfig", None)
        secrets = given.pop("secrets", {})
        cluster = {key: given.pop(key) for key in ("context", "domain") if key in given}
        made = self._once_known({**given, "cluster": {"kind": "existing", **cluster}}, secrets)
        outputs = {key: _entry(made, key) for key in output_types()}
        for key, value in outputs.items():
            setattr(self, key, value)
        self.register_outputs(outputs)

    def _once_known(
        self, values: Values, secrets: Values | pulumi.Output[Values]
    ) -> pulumi.Input[Values]:
        """Create the stack as soon as the program knows its settings, and return its outputs.

        A preview does not wait for values that it cannot know: see `_create`.
        """
        values = assumed.marked(values)
        if isinstance(secrets, pulumi.Output):
            # The code that creates the Kubernetes Secrets marks their values as secret in Pulumi
            # again.
            opened = assumed.marked(pulumi.Output.unsecret(secrets))
            return pulumi.Output.all(self._public(values), opened).apply(self._create_both)
        if _is_plain(values):
            return self._create(values, secrets)
        return self._public(values).apply(lambda known: self._create(known, secrets))

    def _create_both(self, known: Sequence[Values]) -> pulumi.Input[Values]:
        values, secrets = known
        unknown = assumed.unknown_paths(secrets)
        return self._create(values, assumed.replaced(secrets, dict.fromkeys(unknown, "unknown")))

    def _create(self, values: Values, secrets: Values) -> pulumi.Input[Values]:
        """Create the stack, and return its outputs by name.

        For values that a preview does not know, assume other values. Then the outputs are unknown.
        """
        unseen = {secret: dict.fromkeys(entries, _UNSEEN) for secret, entries in secrets.items()}
        settings = _with_whole_numbers({**values, "secrets": unseen})
        if not any(assumed.unknown_paths(settings)):
            return self._create_stack(settings, secrets)
        found = assumed.assume(settings)
        if found is None:
            names = ", ".join(map(assumed.shown, assumed.unknown_paths(settings)))
            pulumi.log.warn(
                f"{self._name}: this preview does not know {names}, and can assume no value that "
                "fits; it shows the component's resources as deleted, although the deploy keeps "
                "them; if it fails because of a protected resource, run `pulumi up --skip-preview`",
                self,
            )
        else:
            shown = ", ".join(f"{assumed.shown(path)}: {one}" for path, one in found.items())
            pulumi.log.warn(
                f"{self._name}: this preview does not know some values yet, and assumes {shown}; "
                "the deploy uses the real values",
                self,
            )
            self._create_stack(assumed.replaced(settings, found), secrets)
        return _unknown()

    def _create_stack(self, values: Values, secrets: Values) -> Values:
        settings = self._settings(values)
        cluster = clusters.make(settings, pulumi.get_stack())
        if self._kubeconfig is not None:
            cluster = replace(cluster, kubeconfig=self._kubeconfig)
        args = SlurmArgs(settings, Path.cwd(), cluster, secrets, prefix=f"{self._name}-")
        return exports(settings, cluster, stack.create(args, self))

    def _public(self, values: Values) -> pulumi.Output[Values]:
        """Return the values as an output.

        Fail if a value is secret, because the state contains the values in plain text.
        """
        output = pulumi.Output.from_input(values)

        def refuse(is_secret: bool) -> None:
            if is_secret:
                raise pulumi.RunError(
                    f"{self._name}: an argument is secret, but only `secrets` and "
                    "`kubeconfig` may be secret, because the state contains all other "
                    "arguments in plain text; move the secret value to the argument "
                    "`secrets`"
                )

        is_secret: pulumi.Input[bool] = ensure_future(pulumi.Output.is_secret(output))
        refused = pulumi.Output.from_input(is_secret).apply(refuse)
        return pulumi.Output.all(pulumi.Output.unsecret(output), refused).apply(
            lambda both: cast(Values, both[0])
        )

    def _settings(self, values: Values) -> Settings:
        try:
            settings = from_values(values, self._name)
        except SettingsError as error:
            raise pulumi.RunError(str(error)) from None
        for warning in settings.warnings():
            # Skip this warning: a kubeconfig from the program usually has only one context.
            if self._kubeconfig is None or not warning.startswith(_NO_CONTEXT):
                pulumi.log.warn(warning, self)
        return settings


def output_types() -> dict[str, Any]:
    """Return the types of the component's outputs by name."""
    return {name: get_args(output)[0] for name, output in get_annotations(SlurmCluster).items()}


def _unknown() -> pulumi.Output[Values]:
    """Return an output whose value a preview does not know."""

    async def later(result: Any) -> Any:
        return result

    return pulumi.Output(set(), later(None), later(False))


def _is_plain(value: Any) -> bool:
    """Return whether a value contains no output, so that its whole contents are known."""
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return not isinstance(value, pulumi.Output | Awaitable)


def _with_whole_numbers(value: Any) -> Any:
    """Return a value with `2` for `2.0`, because Pulumi sends all numbers to plugins as floats."""
    if isinstance(value, Mapping):
        return {key: _with_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _entry(values: pulumi.Input[Values], key: str) -> pulumi.Output[Any]:
    """Return one value as an output, which is known even if other values are still unknown."""
    if isinstance(values, pulumi.Output):
        return values.apply(lambda known: known.get(key))
    return pulumi.Output.from_input(cast(Values, values).get(key))

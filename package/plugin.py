"""The plugin that provides `SlurmCluster` to programs in all languages of Pulumi."""

import json
import sys
from importlib.metadata import version
from typing import cast

import pulumi
from pulumi import provider

from components.conventions import PROJECT
from package.arguments import SlurmClusterArgs
from package.cluster import TYPE, SlurmCluster, output_types
from package.schema import schema


class Provider(provider.Provider):
    """A component provider. Pulumi's engine starts it, and calls it to create a `SlurmCluster`."""

    def __init__(self, number: str) -> None:
        super().__init__(number, json.dumps(schema(number)))

    def construct(
        self,
        name: str,
        resource_type: str,
        inputs: pulumi.Inputs,
        options: pulumi.ResourceOptions | None = None,
    ) -> provider.ConstructResult:
        """Create the component. Raises `InputPropertiesError` for invalid settings."""
        if resource_type != TYPE:
            raise _invalid(
                f"type: {resource_type}: this plugin does not have this type; use {TYPE}"
            )
        try:
            made = SlurmCluster(name, cast(SlurmClusterArgs, inputs), options)
        except pulumi.RunError as error:
            raise _invalid(str(error).replace(f"{name}: ", "")) from None
        state = {key: getattr(made, key) for key in output_types()}
        return provider.ConstructResult(made.urn, state)


def _invalid(problems: str) -> pulumi.InputPropertiesError:
    """Return an error for Pulumi's engine, from lines like `key: value: what is expected`."""
    pairs = (line.split(": ", 1) for line in problems.split("\n"))
    return pulumi.InputPropertiesError(
        "invalid arguments", [{"property_path": key, "reason": reason} for key, reason in pairs]
    )


def main() -> None:
    """Serve the provider until the engine ends it."""
    provider.main(Provider(version(PROJECT)), sys.argv[1:])

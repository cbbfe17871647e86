"""Deploys the Pulumi program where the `pulumi` command cannot be had."""

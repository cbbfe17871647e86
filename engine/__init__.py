"""A Pulumi engine for environments without the `pulumi` command."""

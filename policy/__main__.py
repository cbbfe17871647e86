"""Entry point of the pack. An engine starts this program, and later ends it."""

import sys
from pathlib import Path

# Let Python find the package `policy`: Pulumi runs this folder as a script, not as a package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pulumi
from pulumi_policy import PolicyPack

from policy.allowed import ConfigError, read
from policy.catalogue import NAMES
from policy.pack import NAME, policies

try:
    allowed = read(pulumi.runtime.get_config_env(), pulumi.get_project(), NAMES)
except ConfigError as error:
    sys.exit(f"error: {error}")
PolicyPack(NAME, policies(allowed))

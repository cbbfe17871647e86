"""Tests of `slurmstack:policy` in a stack's config, which sets what the policies allow. A
misspelled key is refused."""

import json
from typing import Any

import pytest

from components.settings import Policy
from components.settings.policy import POLICIES
from policy.allowed import Allowed, ConfigError, matches, read
from policy.catalogue import NAMES
from tests.support.stack import FULL, config, settings

SERVICE = "kubernetes:core/v1:Service"


def policy_config(policy: Any, **more: str) -> dict[str, str]:
    return {"slurmstack:policy": json.dumps(policy), **more}


def test_pack_and_settings_read_the_same_policy() -> None:
    from_the_pack = read(config(base=FULL), "slurmstack", NAMES)
    from_the_settings = settings(base=FULL).policy

    assert set(Allowed.model_fields) == set(Policy.model_fields)
    assert from_the_pack == Allowed(
        registries=(str(FULL["registry"]), *from_the_settings.registries),
        host_paths=from_the_settings.host_paths,
        exceptions=from_the_settings.exceptions,
    )


def test_settings_know_the_names_of_all_policies() -> None:
    assert {*NAMES} == POLICIES


def test_default_policy_allows_only_the_stacks_own_images() -> None:
    assert read({}, "slurmstack", NAMES) == Allowed(registries=("slurmstack",))
    assert read({"slurmstack:registry": "r.lab"}, "slurmstack", NAMES).registries == ("r.lab",)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (
            {"exceptions": {"non-rot": {"a": "b"}}},
            "exceptions: 'non-rot': expected one of added-containers,",
        ),
        ({"exceptions": {"non-root": {"a": ""}}}, "policy.exceptions.non-root.a: "),
        ({"exceptions": {"non-root": ["a"]}}, "policy.exceptions.non-root: "),
        ({"registry": "r.lab"}, "policy.registry: "),
        ([], "slurmstack:policy: "),
    ],
)
def test_invalid_policy_is_refused_in_one_line(policy: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(policy_config(policy), "slurmstack", NAMES)

    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_invalid_json_is_refused() -> None:
    said = r"slurmstack:policy: invalid JSON: .*; write the setting as YAML"
    with pytest.raises(ConfigError, match=said):
        read({"slurmstack:policy": "{"}, "slurmstack", NAMES)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("login-service", True),
        ("login-*", True),
        ("*", True),
        (f"{SERVICE}::login-service", True),
        ("kubernetes:*::login-service", True),
        ("login", False),
        ("Login-service", False),
        ("kubernetes:core/v1:Pod::login-service", False),
    ],
)
def test_exception_pattern_matches_a_name_or_type_and_name(pattern: str, expected: bool) -> None:
    assert matches(pattern, SERVICE, "login-service") is expected

"""What a stack allows is read from its config, and a slip of the pen is no permission."""

import json
from typing import Any

import pytest

from components.settings import Policy
from policy.allowed import Allowed, ConfigError, matches, read
from policy.catalogue import NAMES
from tests.support.stack import FULL, config, settings

SERVICE = "kubernetes:core/v1:Service"


def said(policy: Any, **more: str) -> dict[str, str]:
    return {"slurmstack:policy": json.dumps(policy), **more}


def test_the_pack_and_the_settings_read_the_same() -> None:
    read_by_the_pack = read(config(base=FULL), "slurmstack", NAMES)
    by_the_settings = settings(base=FULL).policy

    assert set(Allowed.model_fields) == set(Policy.model_fields)
    assert read_by_the_pack == Allowed(
        registries=(str(FULL["registry"]), *by_the_settings.registries),
        host_paths=by_the_settings.host_paths,
        exceptions=by_the_settings.exceptions,
    )


def test_a_stack_that_says_nothing_has_images_of_its_own_alone() -> None:
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
def test_what_is_not_understood_is_refused_in_one_line(policy: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(said(policy), "slurmstack", NAMES)

    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ConfigError, match="slurmstack:policy: expected JSON"):
        read({"slurmstack:policy": "{"}, "slurmstack", NAMES)


@pytest.mark.parametrize(
    ("pattern", "meant"),
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
def test_a_resource_is_meant_by_its_name_or_by_type_and_name(pattern: str, meant: bool) -> None:
    assert matches(pattern, SERVICE, "login-service") is meant

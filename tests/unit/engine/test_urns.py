"""URNs, provider references, and former URNs of renamed resources."""

from __future__ import annotations

import pytest

from engine.aliases import Alias, Place, former_urns
from engine.urns import (
    is_default_provider,
    make_urn,
    name_of,
    package_of,
    provided_package,
    resource_type_of,
    short,
    split_reference,
)

STACK = "urn:pulumi:dev::web::pulumi:pulumi:Stack::web-dev"
GROUP = "urn:pulumi:dev::web::my:index:Group::g"


def test_urn_contains_the_types_of_all_parents_except_the_stack() -> None:
    assert make_urn("dev", "web", "", "pulumi:pulumi:Stack", "web-dev") == STACK
    assert make_urn("dev", "web", STACK, "my:index:Group", "g") == GROUP
    child = make_urn("dev", "web", GROUP, "k:core/v1:Pod", "g-p")
    assert child == "urn:pulumi:dev::web::my:index:Group$k:core/v1:Pod::g-p"
    assert make_urn("dev", "web", child, "x:y:Z", "n").split("::")[2] == (
        "my:index:Group$k:core/v1:Pod$x:y:Z"
    )


def test_resource_name_may_contain_colons() -> None:
    urn = make_urn("dev", "web", GROUP, "x:y:Z", "a::b")
    assert (name_of(urn), resource_type_of(urn), short(urn)) == ("a::b", "x:y:Z", "x:y:Z a::b")


def test_package_is_derived_from_the_type() -> None:
    assert package_of("kubernetes:core/v1:Pod") == "kubernetes"
    assert provided_package("pulumi:providers:kubernetes") == "kubernetes"


def test_provider_reference_is_a_urn_and_an_id() -> None:
    assert split_reference(f"{GROUP}::some-id") == (GROUP, "some-id")
    with pytest.raises(ValueError, match="not a provider reference"):
        split_reference("nonsense")


def test_default_providers_are_recognized() -> None:
    def provider(name: str) -> str:
        return make_urn("dev", "web", "", "pulumi:providers:random", name)

    assert is_default_provider(provider("default"))
    assert is_default_provider(provider("default_4_21_4"))
    assert not is_default_provider(provider("defaults"))
    assert not is_default_provider(GROUP.replace("::g", "::default"))


def place(parent: str = STACK, name: str = "a") -> Place:
    return Place("dev", "web", parent, "x:y:Z", name)


@pytest.mark.parametrize(
    ("alias", "urn"),
    [
        (Alias(urn="urn:pulumi:any"), "urn:pulumi:any"),
        (Alias(name="old"), "urn:pulumi:dev::web::x:y:Z::old"),
        (Alias(type="x:y:Old"), "urn:pulumi:dev::web::x:y:Old::a"),
        (Alias(stack="prod", project="site"), "urn:pulumi:prod::site::x:y:Z::a"),
        (Alias(parent=GROUP), "urn:pulumi:dev::web::my:index:Group$x:y:Z::a"),
    ],
)
def test_alias_uses_the_current_value_of_each_unset_field(alias: Alias, urn: str) -> None:
    assert former_urns(place(), [alias], {}) == (urn,)


def test_alias_with_no_parent_means_the_top_level() -> None:
    assert former_urns(place(GROUP), [Alias(no_parent=True)], {}) == (
        "urn:pulumi:dev::web::x:y:Z::a",
    )


def test_former_urns_of_children_use_the_former_parent_name() -> None:
    renamed = {GROUP: GROUP.replace("::g", "::old")}
    below = "urn:pulumi:dev::web::my:index:Group$x:y:Z::"
    assert former_urns(place(GROUP, "g-a"), [], renamed) == (f"{below}old-a",)
    assert former_urns(place(GROUP, "other"), [], renamed) == (f"{below}other",)
    assert former_urns(place(GROUP, "g-a"), [Alias(name="g-b")], renamed) == (
        f"{below}g-b",
        f"{below}old-a",
        f"{below}old-b",
    )

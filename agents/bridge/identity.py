"""Decide as which Slurm user a pod acts."""

from dataclasses import dataclass

from agents.bridge.podspec import Pod
from agents.bridge.wanted import Rule, Wanted
from agents.bridge.wishes import Wishes


class IdentityError(Exception):
    """The settings do not let a pod act as a Slurm user. The message is one line with a remedy."""


@dataclass(frozen=True)
class Identity:
    user: str
    uid: int
    gid: int
    account: str | None
    """None: the user's default account."""
    may_set_priority: bool = False
    """Whether the user may set the priority of a job."""


def identity(pod: Pod, wishes: Wishes, wanted: Wanted) -> Identity:
    """Return the user and account of a pod's job. Raises `IdentityError`.

    An annotation can only choose between the users and accounts of the rules that cover the pod.
    """
    namespace, account = pod.metadata.namespace, pod.spec.service_account_name
    rules = list(wanted.rules_for(namespace, account))
    if not rules:
        raise IdentityError(
            f"no rule in bridge.users covers the namespace '{namespace}' with the service account "
            f"'{account}'; add a rule"
        )
    chosen = [rule for rule in rules if wishes.user in (None, rule.user, str(rule.uid))]
    if not chosen:
        known = ", ".join(sorted({rule.user for rule in rules}))
        raise IdentityError(
            f"user '{wishes.user}': pods in the namespace '{namespace}' with the service account "
            f"'{account}' may act only as: {known}; correct the annotation"
        )
    rule = chosen[0]
    return Identity(
        rule.user, rule.uid, _gid(wishes, rule), _account(wishes, rule), rule.may_set_priority
    )


def _gid(wishes: Wishes, rule: Rule) -> int:
    groups = {rule.user: rule.gid, **rule.groups}
    for name, gid in groups.items():
        if wishes.group in (name, str(gid)):
            return gid
    if wishes.group is None:
        return rule.gid
    raise IdentityError(
        f"group '{wishes.group}': {rule.user} is a member only of: {', '.join(sorted(groups))}; "
        "correct the annotation"
    )


def _account(wishes: Wishes, rule: Rule) -> str | None:
    if not rule.accounts:
        return wishes.account
    if wishes.account is None:
        return rule.accounts[0]
    if wishes.account not in rule.accounts:
        raise IdentityError(
            f"account '{wishes.account}': pods that act as {rule.user} may use only: "
            f"{', '.join(rule.accounts)}; correct the annotation"
        )
    return wishes.account

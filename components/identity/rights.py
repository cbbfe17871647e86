"""Rights in Kubernetes' API: ServiceAccounts of pods, and their roles."""

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.pods import Spec

_API = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Account:
    """A ServiceAccount."""

    name: pulumi.Input[str]
    namespace: pulumi.Input[str]

    def unique_name(self, purpose: str = "") -> pulumi.Output[str]:
        """Return a name that is unique in the cluster, for objects outside the account's
        namespace."""
        suffix = f"-{purpose}" if purpose else ""
        return pulumi.Output.concat(self.namespace, "-", self.name, suffix)

    def user(self) -> pulumi.Output[str]:
        """Return the account's name as a user in requests to Kubernetes' API."""
        return pulumi.Output.concat("system:serviceaccount:", self.namespace, ":", self.name)

    def subjects(self) -> list[Spec]:
        """Return the account as the subjects of a role binding."""
        return [{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}]


def account(
    name: str, account_name: str, namespace: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> Account:
    """Create a ServiceAccount. Only pods that use the function `token` get its token."""
    made = k8s.core.v1.ServiceAccount(
        f"{name}-account",
        metadata={"name": account_name, "namespace": namespace},
        automount_service_account_token=False,
        opts=opts,
    )
    return Account(made.metadata.name, namespace)


def policy(
    spec: Spec, variables: Iterable[tuple[str, str]], rules: Iterable[tuple[str, str]]
) -> Spec:
    """Return the spec of an admission policy.

    `variables` are names with their expressions. `rules` are expressions that must be true, each
    with the message of the error if it is false.
    """
    return {
        **spec,
        # Refuse a request if an expression fails.
        "failurePolicy": "Fail",
        "variables": [{"name": one, "expression": text} for one, text in variables],
        "validations": [{"expression": text, "message": message} for text, message in rules],
    }


def requests(group: str, resources: list[str], operations: list[str]) -> Spec:
    """Return the requests that an admission policy judges."""
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": resources,
        "operations": operations,
    }


def refuse(
    name: str,
    object_name: pulumi.Input[str],
    policy: pulumi.Input[Spec],
    opts: pulumi.ResourceOptions,
    binding: Spec | None = None,
) -> pulumi.Resource:
    """Create an admission policy that refuses requests, and return its binding.

    `policy` is the spec of the policy. `binding` contains additional fields of the binding's spec.
    Neither object has a namespace.
    """
    made = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
        name, metadata={"name": object_name}, spec=policy, opts=opts
    )
    return bind(f"{name}-binding", object_name, made.metadata.name, binding or {}, opts)


def bind(
    name: str,
    object_name: pulumi.Input[str],
    policy: pulumi.Input[str],
    binding: Spec,
    opts: pulumi.ResourceOptions,
) -> pulumi.Resource:
    """Bind an admission policy, and return the binding.

    `binding` contains additional fields of the binding's spec.
    """
    bound: pulumi.Resource = k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
        name,
        metadata={"name": object_name},
        spec={"policyName": policy, "validationActions": ["Deny"], **binding},
        opts=opts,
    )
    return bound


def token(holder: Account) -> Spec:
    """Return the part of a pod's spec that mounts the account's token."""
    return {"serviceAccountName": holder.name, "automountServiceAccountToken": True}


def grant(
    name: str,
    holder: Account,
    namespace: pulumi.Input[str],
    rules: list[Spec],
    opts: pulumi.ResourceOptions,
    purpose: str = "",
) -> pulumi.Resource:
    """Grant an account rights in a namespace. The Role and its binding have the account's name.

    Several stacks may grant rights in the same namespace. So if the namespace is not the account's
    own, the names of the Role and its binding also contain the purpose and the account's namespace.
    """
    own = holder.namespace is namespace
    called = holder.name if own else holder.unique_name(purpose)
    metadata = {"name": called, "namespace": namespace}
    role = k8s.rbac.v1.Role(f"{name}-role", metadata=metadata, rules=rules, opts=opts)
    binding: pulumi.Resource = k8s.rbac.v1.RoleBinding(
        f"{name}-rights",
        metadata=metadata,
        role_ref={"apiGroup": _API, "kind": "Role", "name": role.metadata.name},
        subjects=holder.subjects(),
        opts=opts,
    )
    return binding


def grant_everywhere(
    name: str, holder: Account, rules: list[Spec], opts: pulumi.ResourceOptions
) -> pulumi.Resource:
    """Grant an account rights in the whole cluster."""
    # These objects have no namespace, so each stack of the cluster needs its own names.
    metadata = {"name": holder.unique_name()}
    role = k8s.rbac.v1.ClusterRole(
        f"{name}-cluster-role", metadata=metadata, rules=rules, opts=opts
    )
    binding: pulumi.Resource = k8s.rbac.v1.ClusterRoleBinding(
        f"{name}-cluster-rights",
        metadata=metadata,
        role_ref={"apiGroup": _API, "kind": "ClusterRole", "name": role.metadata.name},
        subjects=holder.subjects(),
        opts=opts,
    )
    return binding

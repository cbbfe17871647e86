"""Convert the rules to policies of Pulumi's policy SDK."""

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)

from policy.allowed import Allowed
from policy.catalogue import RULES, STACK_RULES
from policy.rule import About, Resource, Rule, StackRule

NAME = "slurmstack"


def policies(allowed: Allowed) -> list[Policy]:
    """Return every rule as a policy that respects what the stack's config allows."""
    return [
        *(_policy(rule, allowed) for rule in RULES),
        *(_stack_policy(rule, allowed) for rule in STACK_RULES),
    ]


def _policy(rule: Rule, allowed: Allowed) -> Policy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        resource = Resource(
            args.resource_type, args.name, args.urn, args.props, bool(args.opts.protect)
        )
        if not allowed.excepts(rule.about.name, resource.type, resource.name):
            for finding in rule.check(resource, allowed):
                report(_message(finding, rule.about), None)

    return ResourceValidationPolicy(
        rule.about.name,
        rule.about.demand,
        validate,
        EnforcementLevel(rule.about.level),
        remediation_steps=rule.about.remedy,
    )


def _stack_policy(rule: StackRule, allowed: Allowed) -> Policy:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        for resource, finding in rule.check([_seen(one) for one in args.resources], allowed):
            if resource is None:
                report(_message(finding, rule.about), None)
            elif not allowed.excepts(rule.about.name, resource.type, resource.name):
                report(_message(finding, rule.about), resource.urn)

    return StackValidationPolicy(
        rule.about.name,
        rule.about.demand,
        validate,
        EnforcementLevel(rule.about.level),
        remediation_steps=rule.about.remedy,
    )


def _seen(one: PolicyResource) -> Resource:
    sources = {
        key: tuple(source.urn for source in found)
        for key, found in one.property_dependencies.items()
    }
    return Resource(
        one.resource_type, one.name, one.urn, one.props, bool(one.opts.protect), sources
    )


def _message(finding: str, about: About) -> str:
    return f"{finding}. {about.reason[0].upper()}{about.reason[1:]}: {about.remedy}."

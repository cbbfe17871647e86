"""Faults in policy/: violations that the policies do not report."""

from typing import Final

from tests.mutants.fault import Fault

_RULES: Final = "tests/policy/test_rules.py"
_MISTAKES: Final = "tests/policy/test_mutations.py"

FAULTS: Final = (
    Fault(
        "a site's container in a nodeset's pods may have any capability",
        "policy",
        "policy/pods.py",
        'if added := container.capabilities("add"):',
        "if added := ():",
        "tests/policy/test_stacks.py::test_policies_apply_to_the_pod_fields_of_a_nodeset",
    ),
    Fault(
        "policies ignore init containers",
        "policy",
        "policy/manifests.py",
        'for key in ("initContainers", "containers", "ephemeralContainers")',
        'for key in ("containers", "ephemeralContainers")',
        f"{_MISTAKES}::test_policies_report_each_mistake",
    ),
    Fault(
        "a rule ignores the pods of a CronJob",
        "policy",
        "policy/manifests.py",
        'elif found == "CronJob":',
        'elif found == "CronJobs":',
        f"{_MISTAKES}::test_policies_report_each_mistake",
    ),
    Fault(
        "a load balancer may allow the whole Internet as two ranges",
        "policy",
        "policy/access.py",
        "fours = collapse_addresses(one for one in known if isinstance(one, IPv4Network))",
        "fours = iter(one for one in known if isinstance(one, IPv4Network))",
        f"{_MISTAKES}::test_policies_report_each_mistake",
    ),
    Fault(
        "a volume path that contains '..' may point outside the allowed folders",
        "policy",
        "policy/pods.py",
        'return ".." not in parts.parts and any(',
        "return any(",
        f"{_RULES}::test_rule_accepts_valid_resources_and_reports_violations",
    ),
    Fault(
        "an unknown value hides another violation",
        "policy",
        "policy/rule.py",
        "            unknown = unknown or error\n",
        "            raise error\n",
        f"{_RULES}::test_unknown_value_does_not_hide_another_violation",
    ),
    Fault(
        "a network policy for one direction counts for both directions",
        "policy",
        "policy/access.py",
        '    if types := tuple(spec.get("policyTypes") or ()):\n        return types\n',
        '    if tuple(spec.get("policyTypes") or ()):\n        return ("Ingress", "Egress")\n',
        f"{_MISTAKES}::test_policies_report_each_mistake",
    ),
)

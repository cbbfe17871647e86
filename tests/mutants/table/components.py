"""Faults in components/: rights, protection, secrecy and order of Kubernetes objects."""

from typing import Final

from tests.mutants.fault import Fault

_UNIT: Final = "tests/unit/components"
_GRAPH: Final = f"{_UNIT}/test_graph.py"
_ADMISSION: Final = f"{_UNIT}/test_admission.py"

FAULTS: Final = (
    Fault(
        "the volume of slurmctld's state is not protected",
        "components",
        "components/slurm/controller.py",
        "pulumi.ResourceOptions(parent=self, protect=args.protect),",
        "pulumi.ResourceOptions(parent=self),",
        f"{_GRAPH}::test_data_is_protected_by_default",
    ),
    Fault(
        "slurmd may change the packet filter",
        "components",
        "components/slurm/nodeset.py",
        '    "SYSLOG",\n)',
        '    "SYSLOG",\n    "NET_ADMIN",\n)',
        f"{_UNIT}/test_network.py::test_only_the_guard_may_change_the_packet_filter_of_pods",
    ),
    Fault(
        "every user of a pod may read mounted keys",
        "components",
        "components/pods.py",
        "def secret_volume(name: str, secret: pulumi.Input[str], mode: int = 0o440) -> Spec:",
        "def secret_volume(name: str, secret: pulumi.Input[str], mode: int = 0o444) -> Spec:",
        f"{_GRAPH}::test_secret_files_are_readable_only_by_root_and_the_group",
    ),
    Fault(
        "pods without a declared flow can reach the network",
        "components",
        "components/network/policies.py",
        '        "default": _spec(pods.selector(), [], []),\n',
        "",
        "tests/unit/network/test_matrix.py::test_pods_accept_only_intended_connections",
    ),
    Fault(
        "users can reach a cloud's metadata service",
        "components",
        "components/network/flows.py",
        "but = sorted(cidr for cidr in {*METADATA, *refuse} if",
        "but = sorted(cidr for cidr in refuse if",
        "tests/unit/network/test_matrix.py::test_pods_open_only_intended_connections",
    ),
    Fault(
        "pods get a Kubernetes credential",
        "components",
        "components/pods.py",
        '"automountServiceAccountToken": False,',
        '"automountServiceAccountToken": True,',
        f"{_GRAPH}::test_every_container_is_unprivileged_and_drops_all_capabilities",
    ),
    Fault(
        "the munge key is also in a ConfigMap",
        "components",
        "components/identity/auth.py",
        "        self.secret = secret.metadata.name\n",
        "        self.secret = secret.metadata.name\n"
        "        k8s.core.v1.ConfigMap(\n"
        '            f"{name}-copy",\n'
        '            metadata={"namespace": args.namespace},\n'
        "            data=secret.string_data,\n"
        "            opts=child,\n"
        "        )\n",
        f"{_GRAPH}::test_munge_key_and_ssh_host_keys_are_always_secret",
    ),
    Fault(
        "Kubernetes kills a worker before its drain grace ends",
        "components",
        "components/slurm/nodeset.py",
        '"terminationGracePeriodSeconds": settings.drain_grace + _STOP_MARGIN,',
        '"terminationGracePeriodSeconds": _STOP_MARGIN,',
        f"{_GRAPH}::test_grace_period_of_a_workers_pod_includes_the_drain_grace",
    ),
    Fault(
        "other containers of a worker start before its guard",
        "components",
        "components/slurm/nodeset.py",
        "        *args.guard,\n"
        "        *map(_site_container, settings.pod.init_containers),\n"
        "        *args.site.sidecars(Conf(server=args.slurmctld.server)),\n",
        "        *args.site.sidecars(Conf(server=args.slurmctld.server)),\n"
        "        *args.guard,\n"
        "        *map(_site_container, settings.pod.init_containers),\n",
        f"{_UNIT}/test_network.py::test_guard_is_the_first_container_of_user_pods",
    ),
    Fault(
        "nodes start before the jail is filled",
        "components",
        "components/storage/jail.py",
        "self.claim = once_known(claim, homes.metadata.namespace)",
        "self.claim = once_known(claim, args.site.namespace)",
        f"{_GRAPH}::test_workers_and_login_start_after_controller_and_filled_jail",
    ),
    Fault(
        "a configuration takes effect before the check of slurm.conf",
        "components",
        "components/slurm/configuration.py",
        "        self.proven = self.once_proven(files)\n",
        "        self.proven = pulumi.Output.from_input(files)\n",
        f"{_GRAPH}::test_controller_gets_a_configuration_only_after_its_check",
    ),
    Fault(
        "two slurmdbd run at once during a replacement",
        "components",
        "components/accounting/slurmdbd.py",
        "**pods.ALONE,",
        "replicas=1,",
        f"{_GRAPH}::test_slurmctld_and_slurmdbd_never_run_twice_at_once",
    ),
    Fault(
        "the reconciler can set any taint",
        "components",
        "components/health/admission.py",
        '        f" == {_NEW_TAINTS}.filter(one, one.key != {taint})"\n',
        '        f" != []"\n',
        f"{_ADMISSION}::test_reconciler_cannot_edit_other_node_fields[unmarked-another taint]",
    ),
    Fault(
        "the reconciler can evict all pods of a machine",
        "components",
        "components/health/admission.py",
        'f" || one.effect == {literal(_EFFECT)})"',
        'f" || one.effect != {literal(c.DOMAIN)})"',
        f"{_ADMISSION}::test_reconciler_cannot_edit_other_node_fields[unmarked-an evicting taint]",
    ),
    Fault(
        "the reconciler can add any key to a Node",
        "components",
        "components/cel.py",
        'f" && {new}.all(key, key in {free} || key in {old})"',
        'f" && {new}.size() > 0"',
        f"{_ADMISSION}::test_reconciler_cannot_edit_other_node_fields[unmarked-a cordon]",
    ),
    Fault(
        "the reconciler can change any value of a Node",
        "components",
        "components/cel.py",
        "key in {new} && {new}[key] == {old}[key])",
        "key in {new})",
        f"{_ADMISSION}::test_reconciler_cannot_edit_other_node_fields[unmarked-the kubelet's port]",
    ),
    Fault(
        "the reconciler can mark machines that run no nodeset",
        "components",
        "components/health/admission.py",
        "    if not all(machines):\n",
        "    if machines:\n",
        f"{_ADMISSION}::test_reconciler_may_mark_only_machines_with_a_nodesets_labels[taint]",
    ),
    Fault(
        "the reconciler can stop the eviction of any pod",
        "components",
        "components/health/admission.py",
        'f"{selector}.matchLabels == {workers}",',
        'f"{selector}.matchLabels != []",',
        f"{_ADMISSION}::test_reconcilers_budget_may_protect_only_pods_of_nodesets",
    ),
    Fault(
        "the reconciler can change the pods of its Job",
        "components",
        "components/health/admission.py",
        'equal_but(_BEFORE, _AFTER, "metadata"),',
        '"true",',
        f"{_ADMISSION}::test_reconciler_may_change_nothing_else_of_its_job",
    ),
    Fault(
        "the reconciler can delete slurmctld's pod",
        "components",
        "components/health/admission.py",
        'f" && variables.labels[{component}] == {literal(c.WORKER)}"',
        'f" && variables.labels[{component}] != {literal(c.LOGIN)}"',
        f"{_ADMISSION}::test_reconciler_may_delete_only_pods_of_nodesets[labels1-False]",
    ),
    Fault(
        "the reconciler is not limited if the policy cannot be evaluated",
        "components",
        "components/health/admission.py",
        '"failurePolicy": "Fail",',
        '"failurePolicy": "Ignore",',
        f"{_GRAPH}::test_admission_policy_limits_only_requests_of_the_reconciler",
    ),
    Fault(
        "login_port is the node port although users reach a load balancer",
        "components",
        "components/slurm/login.py",
        'port.node_port if service == "NodePort" and port.node_port else port.port',
        "port.node_port or port.port",
        f"{_UNIT}/test_exports.py::test_outputs_name_the_port_that_users_reach",
    ),
    Fault(
        "a restored dump brings back old accounts",
        "components",
        "components/accounting/accounts.py",
        '{"restored": args.restored} if args.restored else {}',
        "{}",
        f"{_UNIT}/test_edits.py::test_edit_has_exactly_the_expected_effect",
    ),
    Fault(
        "pods on demand may have any rights if their template is missing",
        "components",
        "components/slurm/ondemand.py",
        '"name": nodeset,\n                    "parameterNotFoundAction": "Deny",',
        '"name": nodeset,\n                    "parameterNotFoundAction": "Allow",',
        f"{_UNIT}/test_ondemand.py::test_pod_is_refused_if_its_template_is_missing",
    ),
    Fault(
        "pods on demand may have fields that no rule names",
        "components",
        "components/slurm/ondemandpolicy.py",
        "equal_but(_TEMPLATE_SPEC, _SPEC, *_POD_FIELDS, *_JUDGED_FIELDS, *_DERIVED_FIELDS),",
        '"true",',
        f"{_UNIT}/test_ondemand.py::test_policy_refuses_pods_that_differ_from_their_template",
    ),
    Fault(
        "the agent of nodes on demand may mount any volume",
        "components",
        "components/slurm/ondemandpolicy.py",
        '"topologySpreadConstraints", "volumes"),',
        '"topologySpreadConstraints"),',
        f"{_UNIT}/test_ondemand.py::test_policy_refuses_pods_that_differ_from_their_template",
    ),
)

"""Clusters on the site's own machines. Pulumi connects with SSH, and kubeadm creates the cluster.

The scripts in `kubeadm/` do the work on the machines. When an argument or the script changes,
Pulumi runs the script again, so each script must be idempotent.
"""

import base64
import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import pulumi
import pulumi_command as command
import pulumi_random as random
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from components import conventions as c
from components.cluster.classes import MIG_CONFIG, machine_labels, node_class
from components.cluster.interface import Cluster, ClusterArgs, own_machines
from components.pods import Spec
from components.settings import MetalCluster, Nodeset, Settings, SettingsError
from components.settings.clusters.metal import API_PORT, MetalMachine

_SCRIPTS: Final = Path(__file__).parent / "kubeadm"
_LOCK: Final = "/run/slurmstack.lock"
"""Lock file on each machine. It is needed because the script of a killed deploy may still run when
the next deploy starts."""
_KUBEADM: Final = "kubeadm.k8s.io/v1beta4"
_SOCKET: Final = "unix:///run/containerd/containerd.sock"
_TOKEN_LIFE: Final = "2h0m0s"
"""Lifetime of tokens. kubeadm keeps uploaded certificates for the same time (source: kubeadm's
documentation, upload-certs)."""
_LEAVE: Final = 300
"""Seconds that pods may take to leave a machine, in addition to the nodeset's `drain_grace`."""
_PACKAGE: Final = "metal"
_KEY: Final = "ssh_key"
_INPUTS: Final = ("connection", "create", "delete", "stdin", "triggers")


def make(args: ClusterArgs) -> Cluster:
    """Create a cluster on the machines in the settings."""
    return Metal("metal", args).cluster


class Metal(pulumi.ComponentResource):
    """A cluster of machines. Each machine has its own commands, which prepare the machine, join it
    to the cluster and label its Node.

    The first control plane creates the cluster. It also creates a token for each other machine,
    valid for two hours. The setting `protect_data` prevents the removal and replacement of control
    planes, because they store the cluster's data.
    """

    cluster: Cluster

    def __init__(
        self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("cluster", "Metal"), name, None, opts)
        settings, cluster = args.settings, cast(MetalCluster, args.settings.cluster)
        self._name, self._settings, self._cluster = name, settings, cluster
        self._ssh_key = _ssh_key(cluster.key_file)
        self._nodesets = {nodeset.name: nodeset for nodeset in settings.nodesets}
        self._first = cluster.machine(cluster.control_planes[0])
        # The endpoint of an existing cluster cannot change. The endpoint is a keeper of this key,
        # so an edit of the endpoint would replace the key. With `protect_data`, the engine refuses
        # to replace the key, and therefore refuses the edit.
        self._key = random.RandomPassword(
            f"{name}-certificate-key",
            length=32,
            keepers={"endpoint": cluster.api()},
            opts=pulumi.ResourceOptions(parent=self, protect=settings.protect_data),
        )
        certificate_key: pulumi.Output[str] = self._key.result.apply(
            lambda text: hashlib.sha256(text.encode()).hexdigest()
        )
        self._init = certificate_key.apply(lambda key: init_config(settings, key))
        member = self._member(self._first, "init", self._init)
        kubeconfig = self._command(
            "kubeconfig",
            self._first,
            "kubeconfig",
            # Read the kubeconfig again after an upgrade of Kubernetes, because the upgrade renews
            # the certificate in it.
            triggers=[member.id, cluster.release],
            opts=pulumi.ResourceOptions(parent=self, additional_secret_outputs=["stdout"]),
        ).stdout
        members = {self._first.name: member}
        planes = [cluster.machine(plane) for plane in cluster.control_planes[1:]]
        for machine in planes:
            # Join the control planes one after the other, because etcd accepts only one new member
            # at a time.
            members[machine.name] = member = self._join(
                machine, kubeconfig, member, certificate_key
            )
        for machine in cluster.machines:
            if machine.name not in members:
                members[machine.name] = self._join(machine, kubeconfig, members[self._first.name])
        nodes = [self._node(machine, members[machine.name].id) for machine in cluster.machines]
        self.cluster = Cluster(
            kubeconfig=kubeconfig,
            node_classes={
                nodeset.name: node_class(nodeset, settings, {}) for nodeset in settings.nodesets
            },
            ready=nodes,
        )
        self.register_outputs({"kubeconfig": kubeconfig})

    # --- Machines --------------------------------------------------------------------------------

    def _member(
        self, machine: MetalMachine, step: str, config: pulumi.Input[str]
    ) -> command.remote.Command:
        """Prepare a machine and make it a member of the cluster.

        When Pulumi deletes the returned resource, a script removes the machine from the cluster.
        """
        kubelet = self._cluster.kubeadm.get("KubeletConfiguration", {})
        prepared = self._command(
            f"prepare-{machine.name}",
            machine,
            "prepare",
            self._cluster.release,
            "off" if kubelet.get("failSwapOn", True) else "keep",
            lock=True,
            opts=self._of(machine),
        )
        plane = machine.name in self._cluster.control_planes
        return self._command(
            f"member-{machine.name}",
            machine,
            "member",
            step,
            self._cluster.api(),
            lock=True,
            stdin=config,
            delete=_shell(machine, "reset", lock=True),
            # Run this command again if the address changes: a new address means another machine,
            # even with the same name.
            triggers=[machine.address],
            opts=pulumi.ResourceOptions.merge(
                self._of(machine),
                pulumi.ResourceOptions(
                    protect=plane and self._settings.protect_data,
                    depends_on=[prepared],
                    delete_before_replace=True,
                ),
            ),
        )

    def _join(
        self,
        machine: MetalMachine,
        kubeconfig: pulumi.Output[str],
        after: pulumi.Resource,
        certificate_key: pulumi.Output[str] | None = None,
    ) -> command.remote.Command:
        """Join a machine to the cluster after the resource `after` exists. If `certificate_key` is
        given, the machine becomes a control plane."""
        admitted = self._command(
            f"admit-{machine.name}",
            self._first,
            "admit",
            machine.name,
            _TOKEN_LIFE,
            "worker" if certificate_key is None else "control-plane",
            stdin=None if certificate_key is None else self._init,
            # Create a new token if the host key changes: a machine that was installed again has a
            # new host key, and must join again.
            triggers=[machine.address, machine.host_key],
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[after],
                additional_secret_outputs=["stdout"],
            ),
        )
        config = pulumi.Output.all(kubeconfig, admitted.stdout, certificate_key).apply(
            lambda values: join_config(self._settings, machine, *values)
        )
        return self._member(machine, "join", config)

    def _node(self, machine: MetalMachine, member: pulumi.Input[str]) -> command.remote.Command:
        """Label and taint a machine's Node. When Pulumi deletes this resource, a script drains and
        deletes the Node."""
        nodeset = self._nodesets.get(machine.nodeset or "")
        grace = nodeset.drain_grace if nodeset else 0
        labels, taints = _labels(nodeset, self._settings), _taints(nodeset)
        return self._command(
            f"node-{machine.name}",
            self._first,
            "label",
            machine.name,
            *(_set_or_drop(key, labels.get(key)) for key in (c.LABEL_NODESET, MIG_CONFIG)),
            "--",
            _set_or_drop(c.LABEL_NODESET, taints.get(c.LABEL_NODESET)),
            delete=_shell(self._first, "leave", machine.name, str(grace + _LEAVE)),
            triggers=[member],
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )

    # --- Commands --------------------------------------------------------------------------------

    def _of(self, machine: MetalMachine) -> pulumi.ResourceOptions:
        """Return the resource options for commands that run on the machine itself.

        If the settings mark the machine as lost, the engine runs no commands on it.
        """
        return pulumi.ResourceOptions(
            parent=self,
            # Run commands after the key: if the engine refuses to replace the key, it then stops
            # before it changes any machine.
            depends_on=[self._key],
            retain_on_delete=machine.lost,
            ignore_changes=[*_INPUTS] if machine.lost else None,
        )

    def _command(
        self,
        name: str,
        machine: MetalMachine,
        script: str,
        *arguments: str,
        lock: bool = False,
        opts: pulumi.ResourceOptions,
        **further: Any,
    ) -> command.remote.Command:
        return command.remote.Command(
            f"{self._name}-{name}",
            connection={
                "host": machine.address,
                "port": machine.port,
                "user": machine.user,
                "private_key": self._ssh_key,
                "host_key": machine.host_key,
            },
            create=_shell(machine, script, *arguments, lock=lock),
            # The output of a command can contain secrets, so keep it out of logs and out of the
            # environment of later commands.
            add_previous_output_in_env=False,
            logging=command.remote.Logging.STDERR,
            **further,
            opts=opts,
        )


def _shell(machine: MetalMachine, script: str, *arguments: str, lock: bool = False) -> str:
    """Return a command line that runs a script as root."""
    text = (_SCRIPTS / f"{script}.sh").read_text()
    return shlex.join(
        [
            *([] if machine.user == "root" else ["sudo", "--non-interactive"]),
            # Close the lock file in the script. Otherwise, daemons that the script starts would
            # keep the lock.
            *(["flock", "--close", _LOCK] if lock else []),
            *("bash", "-c", text, f"{script}.sh", *arguments),
        ]
    )


def _ssh_key(file: str | None) -> pulumi.Output[str]:
    """Return the operator's SSH private key. Raises `SettingsError` if the key is missing.

    A preview works without a key, because it connects to no machine.
    """
    if file is None:
        secret = pulumi.Config(_PACKAGE).get_secret(_KEY)
        if secret is not None:
            return secret
        reason = (
            f"cluster.key_file: is not set, and the secret {_PACKAGE}:{_KEY} does not exist; add "
            f"cluster.key_file, or run `pulumi config set --secret {_PACKAGE}:{_KEY}`"
        )
    else:
        try:
            return pulumi.Output.secret(Path(file).expanduser().read_text())
        except OSError as error:
            reason = (
                f"cluster.key_file: '{file}': cannot be read: {error.strerror}; "
                "set it to a readable file with an SSH private key"
            )
    if not pulumi.runtime.is_dry_run():
        raise SettingsError(f"{c.PROJECT}:{reason}")
    # In a preview, only warn: a pipeline that runs previews needs no key, because a preview
    # connects to no machine.
    pulumi.log.warn(f"{c.PROJECT}:{reason}")
    return pulumi.Output.secret("")


# --- Configuration of kubeadm and Kubernetes ------------------------------------------------------


def init_config(settings: Settings, certificate_key: str) -> str:
    """Render kubeadm's configuration for the first control plane (format:
    kubeadm.k8s.io/v1beta4)."""
    cluster = cast(MetalCluster, settings.cluster)
    first = cluster.machine(cluster.control_planes[0])
    cilium = settings.network.cilium
    documents: list[Spec] = [
        {
            "apiVersion": _KUBEADM,
            "kind": "InitConfiguration",
            # Let this token expire after a minute, because no machine uses it: each machine joins
            # with its own token.
            "bootstrapTokens": [{"ttl": "1m0s"}],
            "certificateKey": certificate_key,
            "localAPIEndpoint": _own_endpoint(first),
            "nodeRegistration": _registration(settings, first),
            "skipPhases": ["addon/kube-proxy"] if cilium and cilium.kube_proxy_replacement else [],
        },
        {
            "apiVersion": _KUBEADM,
            "kind": "ClusterConfiguration",
            "clusterName": settings.cluster_name,
            "controlPlaneEndpoint": cluster.api(),
            "kubernetesVersion": f"v{cluster.release}",
            "networking": {
                "dnsDomain": cluster.domain,
                "podSubnet": cluster.pods,
                "serviceSubnet": cluster.services,
            },
            **cluster.kubeadm.get("ClusterConfiguration", {}),
        },
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "systemd",
            **cluster.kubeadm.get("KubeletConfiguration", {}),
        },
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            **cluster.kubeadm.get("KubeProxyConfiguration", {}),
        },
    ]
    return yaml.safe_dump_all(documents, sort_keys=True)


def join_config(
    settings: Settings,
    machine: MetalMachine,
    kubeconfig: str,
    token: str,
    certificate_key: str | None,
) -> str:
    """Render kubeadm's configuration for a machine that joins (format: kubeadm.k8s.io/v1beta4)."""
    cluster = cast(MetalCluster, settings.cluster)
    plane = {"certificateKey": certificate_key, "localAPIEndpoint": _own_endpoint(machine)}
    return yaml.safe_dump(
        {
            "apiVersion": _KUBEADM,
            "kind": "JoinConfiguration",
            "discovery": {
                "bootstrapToken": {
                    "apiServerEndpoint": cluster.api(),
                    "caCertHashes": [ca_hash(kubeconfig)],
                    "token": token.strip(),
                }
            },
            "nodeRegistration": _registration(settings, machine),
            **({"controlPlane": plane} if certificate_key else {}),
        },
        sort_keys=True,
    )


def ca_hash(kubeconfig: str) -> str:
    """Return the SHA-256 of the CA's public key. A joining machine uses it to verify the cluster.

    The format is that of `kubeadm join --discovery-token-ca-cert-hash`.
    """
    (entry,) = yaml.safe_load(kubeconfig)["clusters"]
    data = base64.b64decode(entry["cluster"]["certificate-authority-data"])
    public = x509.load_pem_x509_certificate(data).public_key()
    der = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def _own_endpoint(machine: MetalMachine) -> Spec:
    return {"advertiseAddress": machine.address, "bindPort": API_PORT}


def _registration(settings: Settings, machine: MetalMachine) -> Spec:
    """Return the options that a machine's kubelet uses to register the machine."""
    cluster = cast(MetalCluster, settings.cluster)
    nodesets = {nodeset.name: nodeset for nodeset in settings.nodesets}
    taints = _taints(nodesets.get(machine.nodeset or ""))
    return {
        "criSocket": _SOCKET,
        "kubeletExtraArgs": [{"name": "node-ip", "value": machine.address}],
        "name": machine.name,
        # Set the taints at registration, so that other pods stay off the machine until it has its
        # labels. Always give a list, even an empty one: otherwise kubeadm adds its own taint to
        # control planes.
        "taints": [
            {"key": key, "value": value, "effect": "NoSchedule"}
            for key, value in sorted(taints.items())
        ],
        **cluster.kubeadm.get("nodeRegistration", {}),
    }


def _labels(nodeset: Nodeset | None, settings: Settings) -> Mapping[str, str]:
    return machine_labels(nodeset, settings) if nodeset else {}


def _taints(nodeset: Nodeset | None) -> Mapping[str, str]:
    return own_machines(nodeset) if nodeset else {}


def _set_or_drop(key: str, value: str | None) -> str:
    """Return an argument of `kubectl label` or `kubectl taint` that sets or removes a key."""
    return f"{key}-" if value is None else f"{key}={value}"

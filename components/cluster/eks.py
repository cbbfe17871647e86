"""Clusters on Amazon EKS."""

import ipaddress
import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks

from components import conventions as c
from components.cluster.classes import machine_labels, machine_taints, node_class
from components.cluster.interface import (
    EVERYWHERE,
    Chart,
    Cluster,
    ClusterArgs,
    Storage,
    gib,
)
from components.outputs import once_known
from components.pods import Spec
from components.settings import Nodeset
from components.settings.clusters.eks import (
    SUBNET_BITS,
    ZONES,
    EksCluster,
    EksMachines,
    EksReservation,
)
from components.settings.clusters.machines import SYSTEM
from components.settings.nodesets import NVIDIA

_POLICIES: Final = "arn:aws:iam::aws:policy"
_NODE_POLICIES: Final = (
    "AmazonEC2ContainerRegistryReadOnly",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
)
"""Amazon's policies for the machines' role (source: EKS documentation, node IAM role)."""
_CLASS: Final = "slurmstack"
_SHARED_CLASS: Final = "slurmstack-shared"
_EFS_CLIENT: Final = tuple(
    f"elasticfilesystem:Client{right}" for right in ("Mount", "RootAccess", "Write")
)
"""Rights of machines on the EFS file system. They include access as root, because root owns the
system files in the jail."""
_EFS_OPTIONS: Final = ("tls", "iam")
"""Mount options of EFS: encrypt with TLS, and authenticate with the credentials of the machine's
role (source: EFS documentation, mount helper)."""
_EFA_RESOURCES: Final = {"hugepages-2Mi": "5120Mi"}
"""Huge pages that the library of EFA, Amazon's fast network cards, needs in each pod (source: EKS
documentation, machine learning training with EFA)."""
_EFA_RESOURCE: Final = "vpc.amazonaws.com/efa"
_EFA_PLUGIN: Final = Chart(
    name="aws-efa-k8s-device-plugin",
    namespace="kube-system",
    repository="https://aws.github.io/eks-charts",
    version="v0.5.7",
    values={"tolerations": [EVERYWHERE]},
)
_ROOT_DISK: Final = "/dev/xvda"
"""Root device of Amazon Linux 2023."""
Subnets = Mapping[str, pulumi.Output[str]]
"""Id of the subnet in each zone, sorted by the names of the zones."""


def _of_type(instance: str) -> Spec:
    """Return the fields that choose a node group's instance type.

    EKS makes a launch template for the node group from these fields.
    """
    # Require a token for access to the machine's credentials (version 2 of Amazon's metadata
    # service, IMDSv2). Because pods could also request a token, network policies block the
    # service's address.
    return {"instance_types": [instance], "enable_imd_sv2": True}


def make(args: ClusterArgs) -> Cluster:
    """Create a cluster in the AWS account whose credentials are in the environment."""
    amazon = aws.Provider("aws", region=cast(EksCluster, args.settings.cluster).region)
    return Eks("eks", args, pulumi.ResourceOptions(providers=[amazon])).cluster


class Eks(pulumi.ComponentResource):
    """Network, control plane, file system, and groups of machines: one group for each nodeset, and
    one for everything else."""

    cluster: Cluster

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(c.type_token("cluster", "Eks"), name, None, opts)
        settings, cluster = args.settings, cast(EksCluster, args.settings.cluster)
        self._settings, self._cluster, self._name = settings, cluster, name
        self._child = pulumi.ResourceOptions(parent=self)
        self._kept = pulumi.ResourceOptions(parent=self, protect=settings.protect_data)
        self._tags = {"Name": settings.cluster_name}
        self._vpc: pulumi.Output[str] = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=cluster.network,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=self._tags,
            opts=self._child,
        ).id
        public, private = self._subnets()
        self._workers_in = private[cluster.zones[0]]
        self._kubernetes = self._control_plane(public, private)
        self._machines_role = self._role("machines", "ec2.amazonaws.com", *_NODE_POLICIES)
        system = self._group(
            SYSTEM,
            [*private.values()],
            _sizes(cluster.system.replicas, cluster.system.replicas, cluster.system.replicas),
            **_of_type(cluster.system.type),
        )
        for nodeset in settings.nodesets:
            self._workers(nodeset, cluster.machines[nodeset.name])
        jail, drivers = self._files(private, system)
        kubeconfig = self._kubernetes.kubeconfig_json
        self.cluster = Cluster(
            kubeconfig=kubeconfig,
            node_classes={
                nodeset.name: node_class(nodeset, settings, _efa(cluster.machines[nodeset.name]))
                for nodeset in settings.nodesets
            },
            storage=Storage(
                shared=_SHARED_CLASS if cluster.file_system == "efs" else None,
                jail=jail,
                classes=self._classes(jail),
            ),
            # Use a Network Load Balancer: the default load balancer closes idle connections after a
            # minute.
            login_annotations={"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"},
            charts=[_EFA_PLUGIN] if any(m.efa for m in cluster.machines.values()) else [],
            ready=[system, *drivers],
        )
        self.register_outputs({"kubeconfig": kubeconfig})

    def _control_plane(self, public: Subnets, private: Subnets) -> eks.Cluster:
        settings, cluster = self._settings, self._cluster
        return eks.Cluster(
            f"{self._name}-kubernetes",
            name=settings.cluster_name,
            version=cluster.version,
            vpc_id=self._vpc,
            public_subnet_ids=[*public.values()],
            private_subnet_ids=[*private.values()],
            authentication_mode=eks.AuthenticationMode.API,
            endpoint_private_access=True,
            public_access_cidrs=sorted(cluster.api_from),
            skip_default_node_group=True,
            # Create no other security group: EKS itself creates one for the control plane and all
            # machines.
            skip_default_security_groups=True,
            create_instance_role=False,
            # Amazon's network plugin must enforce network policies, unless Cilium enforces them.
            vpc_cni_options={"enable_network_policy": settings.network.cilium is None},
            tags=self._tags,
            opts=self._kept,
        )

    def _subnets(self) -> tuple[Subnets, Subnets]:
        """Return the public subnets and the private subnets. From a private subnet, machines reach
        the internet only through address translation (NAT)."""
        name, tags = self._name, self._tags
        gateway = aws.ec2.InternetGateway(
            f"{name}-gateway", vpc_id=self._vpc, tags=tags, opts=self._child
        )
        address = aws.ec2.Eip(f"{name}-nat-address", domain="vpc", tags=tags, opts=self._child)
        ranges = ipaddress.ip_network(self._cluster.network).subnets(SUBNET_BITS)
        blocks = [str(block) for block in ranges]
        public = self._subnets_of("public", blocks[0::2], "kubernetes.io/role/elb")
        private = self._subnets_of("private", blocks[1::2], "kubernetes.io/role/internal-elb")
        first = self._cluster.zones[0]
        nat = aws.ec2.NatGateway(
            f"{name}-nat",
            allocation_id=address.id,
            subnet_id=public[first],
            tags=tags,
            # Delete the old gateway first: a replacement can use the address only after that.
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        return (
            self._routed("public", public, {"gateway_id": gateway.id}),
            self._routed("private", private, {"nat_gateway_id": nat.id}),
        )

    def _subnets_of(self, kind: str, blocks: Sequence[str], role: str) -> Subnets:
        return {
            zone: aws.ec2.Subnet(
                f"{self._name}-{kind}-{zone}",
                vpc_id=self._vpc,
                availability_zone=zone,
                # The zone's letter selects the range, so the range stays the same when other zones
                # are added or removed.
                cidr_block=blocks[ZONES.index(zone[-1])],
                map_public_ip_on_launch=kind == "public",
                # Set the tag by which Amazon's load balancers find their subnets.
                tags={**self._tags, role: "1"},
                opts=self._child,
            ).id
            for zone in sorted(self._cluster.zones)
        }

    def _routed(self, kind: str, subnets: Subnets, target: dict[str, pulumi.Input[str]]) -> Subnets:
        """Give the subnets routes, and return their ids.

        Machines need routes when they start. Pulumi therefore knows the returned ids only after the
        subnets have routes, and creates the machines after that.
        """
        table = aws.ec2.RouteTable(
            f"{self._name}-{kind}",
            vpc_id=self._vpc,
            routes=[{"cidr_block": "0.0.0.0/0", **target}],
            tags=self._tags,
            opts=self._child,
        )
        return {
            zone: aws.ec2.RouteTableAssociation(
                f"{self._name}-{kind}-route-{zone}",
                route_table_id=table.id,
                subnet_id=subnet,
                opts=self._child,
            ).subnet_id
            for zone, subnet in subnets.items()
        }

    def _role(self, name: str, service: str, *policies: str) -> pulumi.Output[str]:
        """Create a role for an AWS service, and return the role's ARN.

        Pulumi knows the ARN only after the policies are attached to the role.
        """
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": service},
            "Action": ["sts:AssumeRole", *(["sts:TagSession"] if "pods" in service else [])],
        }
        role = aws.iam.Role(
            f"{self._name}-{name}-role",
            assume_role_policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}),
            tags=self._tags,
            opts=self._child,
        )
        attached = [
            aws.iam.RolePolicyAttachment(
                f"{self._name}-{name}-{policy.rpartition('/')[2]}",
                role=role.name,
                policy_arn=f"{_POLICIES}/{policy}",
                opts=self._child,
            ).policy_arn
            for policy in policies
        ]
        return once_known(role.arn, *attached)

    def _workers(self, nodeset: Nodeset, machines: EksMachines) -> None:
        """Create one machine for each node of a nodeset, all in one zone."""
        bounds = self._cluster.bounds(nodeset)
        nvidia = nodeset.gpus is not None and nodeset.gpus.vendor() == NVIDIA
        self._group(
            nodeset.name,
            [self._workers_in],
            _sizes(bounds.min if nodeset.on_demand else nodeset.replicas, bounds.min, bounds.max)
            if bounds
            else _sizes(nodeset.replicas, nodeset.replicas, max(nodeset.replicas, 1)),
            ami_type=eks.AmiType.AL2023_X86_64_NVIDIA
            if nvidia
            else eks.AmiType.AL2023_X86_64_STANDARD,
            labels=machine_labels(nodeset, self._settings),
            taints=machine_taints(nodeset),
            # If the nodeset has bounds, an autoscaler determines the number of machines. A deploy
            # must then not reset this number.
            ignore_scaling_changes=bounds is not None,
            **self._instances(nodeset, machines),
        )

    def _instances(self, nodeset: Nodeset, machines: EksMachines) -> Spec:
        """Return the fields that choose a group's instances, disks and network cards."""
        if machines.reservation:
            return self._reserved(nodeset, machines, machines.reservation)
        efa = {
            "enable_efa_support": True,
            "placement_group_availability_zone": self._cluster.zones[0],
        }
        return {
            **_of_type(machines.type),
            "disk_size": gib(machines.disk),
            "capacity_type": "SPOT" if machines.spot else "ON_DEMAND",
            **(efa if machines.efa else {}),
        }

    def _reserved(
        self, nodeset: Nodeset, machines: EksMachines, reservation: EksReservation
    ) -> Spec:
        """Return the fields of a group of machines on reserved capacity.

        Only a launch template can name the reservation. So this template also defines the
        instances, disks and network cards.
        """
        block = reservation.kind == "block"
        template = aws.ec2.LaunchTemplate(
            f"{self._name}-template-{nodeset.name}",
            instance_type=machines.type,
            capacity_reservation_specification={
                "capacity_reservation_target": {"capacity_reservation_id": reservation.id}
            },
            **({"instance_market_options": {"market_type": "capacity-block"}} if block else {}),
            # Require a token for access to the machine's credentials (IMDSv2).
            metadata_options={
                "http_endpoint": "enabled",
                "http_put_response_hop_limit": 2,
                "http_tokens": "required",
            },
            block_device_mappings=[
                {
                    "device_name": _ROOT_DISK,
                    "ebs": {
                        "delete_on_termination": "true",
                        "encrypted": "true",
                        "volume_size": gib(machines.disk),
                        "volume_type": "gp3",
                    },
                }
            ],
            **self._cards(machines.efa or 0),
            update_default_version=True,
            tags=self._tags,
            opts=self._child,
        )
        return {
            "launch_template": {"id": template.id, "version": template.latest_version.apply(str)},
            "capacity_type": "CAPACITY_BLOCK" if block else "ON_DEMAND",
        }

    def _cards(self, number: int) -> Spec:
        """Return the Elastic Fabric Adapters of an instance, one on each of its network cards."""
        cards = [
            {
                "network_card_index": card,
                # Give only the first card the device index 0, because it is also the instance's own
                # network device.
                "device_index": min(card, 1),
                "interface_type": "efa",
                "security_groups": [self._kubernetes.cluster_security_group_id],
                "delete_on_termination": "true",
            }
            for card in range(number)
        ]
        return {"network_interfaces": cards} if cards else {}

    def _group(
        self,
        group: str,
        subnets: Sequence[pulumi.Input[str]],
        scaling: Spec,
        **further: object,
    ) -> pulumi.Resource:
        made: pulumi.Resource = eks.ManagedNodeGroup(
            f"{self._name}-group-{group}",
            cluster=self._kubernetes,
            node_role_arn=self._machines_role,
            subnet_ids=subnets,
            scaling_config=scaling,
            tags=self._tags,
            **further,
            opts=self._child,
        )
        return made

    # --- Storage ---------------------------------------------------------------------------------

    def _files(
        self, subnets: Subnets, system: pulumi.Resource
    ) -> tuple[Spec | None, list[pulumi.Resource]]:
        """Create the jail's file system. Return the source of the jail's volume, and the storage
        drivers."""
        agent = self._driver("eks-pod-identity-agent", None, [system])
        disks = self._driver("aws-ebs-csi-driver", "service-role/AmazonEBSCSIDriverPolicy", [agent])
        lustre = self._cluster.file_system == "lustre"
        # Lustre has no storage class here, so only the jail can use Lustre. If the jail is on
        # another volume, create no Lustre file system.
        if lustre and self._settings.jail.is_elsewhere():
            return None, [disks]
        jail = self._lustre() if lustre else self._efs(subnets)
        files = (
            self._driver("aws-fsx-csi-driver", "AmazonFSxFullAccess", [agent])
            if lustre
            else self._driver(
                "aws-efs-csi-driver", "service-role/AmazonEFSCSIDriverPolicy", [agent]
            )
        )
        return jail, [disks, files]

    def _admitted(
        self, ports: Sequence[tuple[int, int]], *, themselves: bool
    ) -> pulumi.Output[str]:
        """Create a security group for the file system, and return its id.

        The group admits connections from the machines. If `themselves` is true, it also admits
        connections between its own members.
        """
        group: pulumi.Output[str] = aws.ec2.SecurityGroup(
            f"{self._name}-files",
            vpc_id=self._vpc,
            description="The jail's file system, from the machines",
            ingress=[
                {
                    "protocol": "tcp",
                    "from_port": first,
                    "to_port": last,
                    "security_groups": [self._kubernetes.cluster_security_group_id],
                    "self": themselves,
                }
                for first, last in ports
            ],
            tags=self._tags,
            opts=self._child,
        ).id
        return group

    def _lustre(self) -> Spec:
        # Also admit members of the group: Lustre's servers connect to each other and to their
        # clients.
        allowed = self._admitted(c.LUSTRE_PORTS, themselves=True)
        for first, last in c.LUSTRE_PORTS:
            aws.vpc.SecurityGroupIngressRule(
                f"{self._name}-lustre-to-machines-{first}",
                security_group_id=self._kubernetes.cluster_security_group_id,
                referenced_security_group_id=allowed,
                ip_protocol="tcp",
                from_port=first,
                to_port=last,
                tags=self._tags,
                opts=self._child,
            )
        files = aws.fsx.LustreFileSystem(
            f"{self._name}-lustre",
            subnet_ids=self._workers_in,
            security_group_ids=[allowed],
            storage_capacity=gib(self._settings.jail.size),
            deployment_type="PERSISTENT_2",
            storage_type="SSD",
            per_unit_storage_throughput=self._cluster.throughput,
            file_system_type_version="2.15",
            tags=self._tags,
            opts=self._kept,
        )
        return {
            "csi": {
                "driver": "fsx.csi.aws.com",
                "volumeHandle": files.id,
                "volumeAttributes": {"dnsname": files.dns_name, "mountname": files.mount_name},
            },
            # Let nodes see each other's file locks.
            "mountOptions": ["flock"],
        }

    def _efs(self, subnets: Subnets) -> Spec:
        allowed = self._admitted([(c.NFS_PORT, c.NFS_PORT)], themselves=False)
        files: pulumi.Output[str] = aws.efs.FileSystem(
            f"{self._name}-efs",
            encrypted=True,
            throughput_mode="elastic",
            tags=self._tags,
            opts=self._kept,
        ).id
        # The security group also admits connections from pods on the machines. This policy refuses
        # pods, because they lack the machines' role.
        guarded = aws.efs.FileSystemPolicy(
            f"{self._name}-efs-policy",
            file_system_id=files,
            policy=self._machines_role.apply(_efs_policy),
            opts=self._child,
        ).file_system_id
        targets = [
            aws.efs.MountTarget(
                f"{self._name}-efs-{zone}",
                file_system_id=files,
                subnet_id=subnet,
                security_groups=[allowed],
                opts=self._child,
            ).file_system_id
            for zone, subnet in subnets.items()
        ]
        # Let Pulumi know the handle only after the policy is in force and the mount targets exist,
        # so that volumes are created after that.
        handle = once_known(guarded, *targets)
        return {
            "csi": {"driver": "efs.csi.aws.com", "volumeHandle": handle},
            "mountOptions": list(_EFS_OPTIONS),
        }

    def _classes(self, jail: Spec | None) -> dict[str, Spec]:
        """Return the default storage class for disks. With EFS, also return a class for
        ReadWriteMany, whose volumes are folders of the file system."""
        disks: Spec = {
            "metadata": {
                "name": _CLASS,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "ebs.csi.aws.com",
            "parameters": {"type": "gp3", "encrypted": "true"},
            "allow_volume_expansion": True,
            "volume_binding_mode": "WaitForFirstConsumer",
        }
        if jail is None or self._cluster.file_system != "efs":
            return {_CLASS: disks}
        folders: Spec = {
            "metadata": {"name": _SHARED_CLASS},
            "provisioner": "efs.csi.aws.com",
            "parameters": {
                "provisioningMode": "efs-ap",
                "fileSystemId": jail["csi"]["volumeHandle"],
                "directoryPerms": "700",
            },
            "mount_options": list(_EFS_OPTIONS),
        }
        return {_CLASS: disks, _SHARED_CLASS: folders}

    def _driver(
        self, addon: str, policy: str | None, after: Sequence[pulumi.Resource]
    ) -> pulumi.Resource:
        """Install an EKS add-on. `policy` is the policy for the role of the add-on's controller."""
        account = f"{addon.removeprefix('aws-').removesuffix('-driver')}-controller-sa"
        roles = (
            [
                {
                    "role_arn": self._role(addon, "pods.eks.amazonaws.com", policy),
                    "service_account": account,
                }
            ]
            if policy
            else []
        )
        made: pulumi.Resource = aws.eks.Addon(
            f"{self._name}-{addon}",
            addon_name=addon,
            cluster_name=self._settings.cluster_name,
            **({"pod_identity_associations": roles} if roles else {}),
            tags=self._tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*after]),
        )
        return made


def _efs_policy(machines: str) -> str:
    """Return a file-system policy: only the machines' role may mount, and only through TLS.

    If a file system has a policy, EFS accepts only clients that a statement of the policy allows.
    So it refuses anonymous clients (source: EFS documentation, using IAM to control file system
    data access).
    """
    statements = [
        {
            "Effect": "Allow",
            "Principal": {"AWS": machines},
            "Action": list(_EFS_CLIENT),
            "Condition": {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
        },
        {
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": list(_EFS_CLIENT),
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def _sizes(desired: int, least: int, most: int) -> Spec:
    return {"desired_size": max(desired, least), "min_size": least, "max_size": most}


def _efa(machines: EksMachines) -> dict[str, str]:
    """Return the resources that a node's pod requests for the EFA adapters of its machine."""
    return {_EFA_RESOURCE: str(machines.efa), **_EFA_RESOURCES} if machines.efa else {}

"""The shared root file system that users see on every node."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.settings import Jail as JailSettings

_ANY_OWNER = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID")
"""What root needs to lay out files of every owner, and no more."""


@dataclass(frozen=True)
class JailArgs:
    namespace: pulumi.Input[str]
    settings: JailSettings
    images: pods.Images
    accounts: pulumi.Input[str]
    """ConfigMap with passwd and group."""
    passwd: str
    """Its passwd: when that changes, homes are made for who is new."""
    protect: bool


class Jail(pulumi.ComponentResource):
    """The jail's volume, the Job that fills it from the jail image, and the one for homes.

    Both Jobs do nothing where their work is done, so that replacing one is safe at any time.
    """

    claim: pulumi.Output[str]
    """Name of the PersistentVolumeClaim, known once the volume is filled and the homes are there:
    who mounts it by this output comes after both Jobs."""

    def __init__(
        self, name: str, args: JailArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("jail", "Jail"), name, None, opts)
        claim = pods.claim(
            f"{name}-claim",
            c.JAIL_CLAIM,
            args.namespace,
            pods.Volume("ReadWriteMany", args.settings.size, args.settings.storage_class),
            pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        populate = self._job(
            f"{name}-populate",
            args,
            claim.metadata.name,
            {
                "name": "populate",
                **pods.image("jail", args.images),
                "env": [{"name": "JAIL_REFRESH", "value": str(args.settings.refresh)}],
                "volumeMounts": [pods.mount("jail", c.JAIL)],
            },
            volumes=[],
        )
        homes = self._job(
            f"{name}-homes",
            args,
            claim.metadata.name,
            {
                "name": "homes",
                **pods.image("agents", args.images),
                "args": ["agents.homes", f"{c.EXTRAUSERS}/passwd", c.JAIL],
                "volumeMounts": [pods.mount("jail", c.JAIL), pods.users_mount()],
            },
            volumes=[pods.users_volume(args.accounts)],
            annotations={c.ANNOTATION_CHECKSUM: c.checksum({"passwd": args.passwd})},
            depends_on=[populate],
        )
        # Of `homes`, something that a preview knows as well, so that it shows no false changes.
        self.claim = pulumi.Output.all(claim.metadata.name, homes.metadata.namespace).apply(
            lambda known: str(known[0])
        )
        self.register_outputs({"claim": self.claim})

    def _job(
        self,
        name: str,
        args: JailArgs,
        claim: pulumi.Input[str],
        container: pods.Spec,
        *,
        volumes: Sequence[pods.Spec],
        annotations: dict[str, str] | None = None,
        depends_on: Sequence[pulumi.Resource] = (),
    ) -> k8s.batch.v1.Job:
        """A Job that runs one container as root with the jail mounted."""
        metadata = {"annotations": annotations} if annotations else {}
        return k8s.batch.v1.Job(
            name,
            metadata={"namespace": args.namespace, "labels": pods.labels("jail")},
            spec={
                "backoffLimit": 3,
                "template": {
                    "metadata": {"labels": pods.labels("jail"), **metadata},
                    "spec": {
                        **pods.pod_defaults(args.images),
                        "restartPolicy": "Never",
                        "containers": [{**container, **pods.security(*_ANY_OWNER, user=0)}],
                        "volumes": [pods.claim_volume("jail", claim), *volumes],
                    },
                },
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(depends_on)),
        )

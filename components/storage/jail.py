"""The jail: the shared root file system that users see on every node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.outputs import once_known
from components.settings import Csi
from components.settings import Jail as JailSettings
from components.site import Site
from components.storage.nfs import NfsServer, NfsServerArgs
from components.storage.store import Restore
from components.storage.volumes import submount_volumes

ANY_OWNER = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID")
"""Capabilities that root needs to create files for any owner."""


_NOMINAL = 1024
"""Size in MiB that the volume declares if the file system itself determines the real size."""
_PATIENCE = "1h"
"""Time that the Jobs may take. It is long, because the jail has tens of thousands of small files,
and some file systems are slow."""
_RESTORE_PATIENCE = "24h"
"""Time that the Jobs may take if they restore the jail from a backup."""


@dataclass(frozen=True)
class JailArgs:
    site: Site
    settings: JailSettings
    passwd: str
    """The jail's passwd. A changed passwd runs the Job that creates the homes of new users."""
    protect: bool
    restore: Restore
    """Containers and volumes that restore the jail and its volumes before system files are
    copied."""
    files: pods.Spec | None = None
    """Source of a volume on the cluster's own file system. The jail uses it if the settings choose
    no other source."""


class Jail(pulumi.ComponentResource):
    """The jail's volume, a Job for its system files (`agents.populate`), and a Job for homes.

    Both Jobs skip work that an earlier run has done, so they can run again at any time.
    """

    origin: k8s.core.v1.ConfigMap
    """ConfigMap that records the source of the jail's volume. If an edit changes the source, the
    deploy fails at this ConfigMap, before it changes anything else of the jail."""
    claim: pulumi.Output[str]
    """Name of the PersistentVolumeClaim. Pulumi knows this output only after both Jobs have ended,
    so Pulumi creates pods with this claim only when the jail is ready."""

    def __init__(
        self, name: str, args: JailArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("jail", "Jail"), name, None, opts)
        self.origin = _origin(name, args, self)
        claim = self._claim(name, args)
        places = sorted(volume.path for volume in args.settings.volumes)
        # The Job for homes needs only the additional volumes below /home.
        homes_own = [v for v in args.settings.volumes if f"{v.path}/".startswith("/home/")]
        populate = self._job(
            f"{name}-populate",
            args,
            claim,
            {
                "name": "populate",
                **pods.image("jail", args.site.images),
                "env": [
                    {"name": "JAIL_REFRESH", "value": str(args.settings.refresh)},
                    *([{"name": "JAIL_SUBMOUNTS", "value": " ".join(places)}] if places else []),
                ],
                "volumeMounts": [pods.mount("jail", c.JAIL)],
                **pods.requests("50m", "64Mi"),
            },
            further=_restoring(args),
        )
        homes = self._job(
            f"{name}-homes",
            args,
            claim,
            {
                "name": "homes",
                **pods.image("agents", args.site.images),
                "args": ["agents.homes", f"{c.EXTRAUSERS}/passwd", c.JAIL],
                "volumeMounts": [
                    pods.mount("jail", c.JAIL),
                    # Mount the volumes inside the jail. Users can create symbolic links there,
                    # but such a link leads to no other file of this pod.
                    *(
                        pods.mount(f"jail-{v.name}", f"{c.JAIL}{v.path}", read_only=v.read_only)
                        for v in sorted(homes_own, key=lambda v: v.path)
                    ),
                    pods.users_mount(),
                ],
                **pods.requests("10m", "32Mi"),
            },
            further={"volumes": [*submount_volumes(homes_own), pods.users_volume(args.site.users)]},
            annotations={c.ANNOTATION_CHECKSUM: c.checksum({"passwd": args.passwd})},
            depends_on=[populate],
        )
        # Depend on the Job's namespace, because a preview also knows the namespace. With an
        # unknown value, the preview would show changes that do not happen.
        self.claim = once_known(claim, homes.metadata.namespace)
        self.register_outputs({"claim": self.claim})

    def _claim(self, name: str, args: JailArgs) -> pulumi.Output[str]:
        """Return the claim's name. The volume is new (from a StorageClass) or already exists."""
        settings = args.settings
        held: pulumi.Output[str] = self.origin.data["claim"]
        if settings.claim:
            return held
        files = _files(args)
        source = files or _source(settings, args.site.namespace)
        if settings.server:
            served = NfsServerArgs(
                namespace=self.origin.metadata.namespace,
                settings=settings.server,
                size=settings.size,
                site=args.site,
                protect=args.protect,
            )
            child = pulumi.ResourceOptions(parent=self)
            source = files = NfsServer(f"{name}-server", served, child).source
        opts = pulumi.ResourceOptions(parent=self, protect=args.protect, depends_on=[self.origin])
        wanted = pods.Volume("ReadWriteMany", settings.size, settings.storage_class)
        if files:
            # Declare a fixed size. The cluster or the server sets the real size, and Kubernetes
            # resizes only volumes that it has created.
            wanted = replace(wanted, size=_NOMINAL)
        if source:
            volume = k8s.core.v1.PersistentVolume(
                f"{name}-volume",
                # PersistentVolumes have no namespace, so each stack needs its own name.
                metadata={"name": pulumi.Output.concat(args.site.namespace, "-", c.JAIL_CLAIM)},
                spec={
                    "accessModes": [wanted.access],
                    "capacity": {"storage": f"{wanted.size}Mi"},
                    # Reserve the volume for this claim, and keep it if the claim is deleted.
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "name": c.JAIL_CLAIM,
                        "namespace": args.site.namespace,
                    },
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": "",
                    **source,
                },
                opts=opts,
            )
            wanted = replace(wanted, storage_class="", name=volume.metadata.name)
        claim = pods.claim(f"{name}-claim", c.JAIL_CLAIM, args.site.namespace, wanted, opts)
        bound: pulumi.Output[str] = claim.metadata.name
        return bound

    def _job(
        self,
        name: str,
        args: JailArgs,
        claim: pulumi.Input[str],
        container: pods.Spec,
        *,
        further: pods.Spec,
        annotations: Mapping[str, pulumi.Input[str]] | None = None,
        depends_on: Sequence[pulumi.Resource] = (),
    ) -> k8s.batch.v1.Job:
        """Create a Job that runs one container as root with the jail mounted.

        `further` contains the pod's other volumes, and containers that run before this one.
        """
        return k8s.batch.v1.Job(
            name,
            metadata={"namespace": args.site.namespace, "labels": pods.labels(c.JAIL_JOBS)},
            spec={
                "backoffLimit": 3,
                **pods.fail_on(container["name"], c.JAIL_REFUSED),
                "template": pods.template(
                    c.JAIL_JOBS,
                    {
                        **args.site.pod(c.JAIL_JOBS),
                        "restartPolicy": "Never",
                        **further,
                        "containers": [{**container, **pods.security(*ANY_OWNER, user=0)}],
                        "volumes": [pods.claim_volume("jail", claim), *further["volumes"]],
                    },
                    annotations,
                ),
            },
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(depends_on),
                custom_timeouts=pulumi.CustomTimeouts(
                    create=_RESTORE_PATIENCE if args.restore.containers else _PATIENCE
                ),
            ),
        )


def _restoring(args: JailArgs) -> pods.Spec:
    """Return the containers and volumes of a pod that restores the jail."""
    restore = args.restore
    if not restore.containers:
        return {"volumes": []}
    return {
        "initContainers": list(restore.containers),
        "volumes": [*submount_volumes(args.settings.volumes), *restore.volumes],
    }


def _origin(name: str, args: JailArgs, parent: Jail) -> k8s.core.v1.ConfigMap:
    """Create a ConfigMap whose name records the source of the jail's volume.

    The ConfigMap is protected, so the engine refuses an edit of the source at once. Without this
    ConfigMap, the engine would first create another volume and move pods to it, away from users'
    data. It would fail only at the end, when it must delete the protected claim.
    """
    settings = args.settings
    origin = settings.origin() or (("cluster",) if _files(args) else ())
    return pods.config_map(
        f"{name}-origin",
        "-".join((c.JAIL_ORIGIN, *origin)),
        args.site.namespace,
        {"claim": settings.claim or c.JAIL_CLAIM},
        pulumi.ResourceOptions(parent=parent, protect=args.protect),
    )


def _files(args: JailArgs) -> pods.Spec | None:
    """Return the source of the cluster's file system if the jail uses this file system, else
    None."""
    return None if args.settings.is_elsewhere() else args.files


def _source(settings: JailSettings, namespace: pulumi.Input[str]) -> pods.Spec:
    """Return the source of an existing volume; empty for a StorageClass."""
    if settings.nfs:
        nfs = settings.nfs
        found = {"nfs": {"server": nfs.server, "path": nfs.path}}
        return {**found, **_mounted_with(nfs.options)}
    if settings.csi:
        return _csi(settings.csi, namespace)
    if settings.host_path:
        return {"hostPath": {"path": settings.host_path, "type": "Directory"}}
    return {}


def _csi(csi: Csi, namespace: pulumi.Input[str]) -> pods.Spec:
    secrets = {
        "nodeStageSecretRef": csi.node_stage_secret,
        "nodePublishSecretRef": csi.node_publish_secret,
    }
    found: pods.Spec = {
        "driver": csi.driver,
        "volumeHandle": csi.handle,
        **({"volumeAttributes": csi.attributes} if csi.attributes else {}),
        **{
            key: {"name": secret, "namespace": namespace}
            for key, secret in secrets.items()
            if secret
        },
    }
    return {"csi": found, **_mounted_with(csi.options)}


def _mounted_with(options: Sequence[str]) -> pods.Spec:
    return {"mountOptions": list(options)} if options else {}

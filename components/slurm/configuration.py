"""Slurm's configuration files. A real slurmctld tests them before they take effect."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.identity.auth import Conf, pod_security
from components.outputs import once_known
from components.site import Site

T = TypeVar("T")


@dataclass(frozen=True)
class SlurmConfigArgs:
    site: Site
    files: Mapping[str, str]
    """Slurm's configuration files by name."""
    node_confs: Mapping[str, str]
    """For each dynamic nodeset, the description that its nodes send to slurmctld when they
    register."""
    scripts: Mapping[str, str]
    """Scripts that workers run, by name."""


class SlurmConfig(pulumi.ComponentResource):
    """A ConfigMap with the new files, and a Job that starts a test slurmctld with them.

    If the test slurmctld refuses the new files, the Job fails, and the running slurmctld keeps the
    previous files.
    """

    proven: pulumi.Output[Mapping[str, str]]
    """The files. Pulumi knows this output only after the Job has succeeded."""
    _check: k8s.batch.v1.Job
    scripts: pulumi.Output[str]
    """Name of the ConfigMap with the scripts."""

    def __init__(
        self, name: str, args: SlurmConfigArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("configuration", "SlurmConfig"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        files = dict(sorted(args.files.items()))
        candidate = pods.config_map(
            f"{name}-candidate", c.SLURM_CONFIG_CANDIDATE, args.site.namespace, files, child
        )
        self._check = k8s.batch.v1.Job(
            f"{name}-check",
            metadata={"namespace": args.site.namespace, "labels": pods.labels(c.CONFIG_CHECK)},
            spec=_check_job(args, candidate.metadata.name),
            opts=child,
        )
        self.proven = self.once_proven(files)
        scripts = pods.config_map(
            f"{name}-scripts",
            c.SCRIPTS_CONFIG,
            args.site.namespace,
            self.once_proven(dict(sorted(args.scripts.items()))) if args.scripts else None,
            child,
        )
        self.scripts = scripts.metadata.name
        self.register_outputs({"proven": self.proven, "scripts": self.scripts})

    def once_proven(self, value: T) -> pulumi.Output[T]:
        """Return the value as an output that Pulumi knows only after the Job has succeeded.

        If slurmctld refuses an edit, the deploy therefore changes nothing that depends on the
        value.
        """
        # Depend on the Job's namespace, because a preview also knows it. If the output were unknown
        # in a preview, the preview would show changes that do not happen.
        return once_known(value, self._check.metadata.namespace)


def _check_job(args: SlurmConfigArgs, candidate: pulumi.Input[str]) -> pods.Spec:
    # Omit empty values, here and elsewhere. The Kubernetes provider does not keep empty values in
    # the state, so the embedded engine would find a change in every deploy.
    environment = args.site.auth.daemon_environment()
    # The ConfigMap is optional, because the first deploy creates it only after the Job.
    in_force = {"name": "in-force", "configMap": {"name": c.SLURM_CONFIG, "optional": True}}
    mounted = [
        pods.mounted(pods.config_volume("candidate", candidate), c.SLURM_CANDIDATE, read_only=True),
        pods.mounted(in_force, c.SLURM_ETC, read_only=True),
        pods.mounted(pods.disk_volume("state"), c.CONTROLLER_SPOOL),
        pods.mounted(pods.disk_volume("tmp"), "/tmp"),
    ]
    return {
        "backoffLimit": 3,
        **pods.fail_on("check", c.CONFIG_REFUSED),
        "template": pods.template(
            c.CONFIG_CHECK,
            {
                **args.site.pod(c.CONFIG_CHECK),
                **pod_security(args.site.auth),
                "restartPolicy": "Never",
                # Set the host name to the value of SlurmctldHost in slurm.conf: on a host with
                # another name, slurmctld does not start.
                "hostname": c.CONTROLLER_HOST,
                "initContainers": args.site.auth.sidecars(
                    args.site.images,
                    Conf(mount=pods.mount("candidate", c.SLURM_ETC, read_only=True)),
                ),
                "containers": [
                    {
                        "name": "check",
                        **pods.image("controller", args.site.images),
                        "command": [f"{c.PROGRAMS}/check"],
                        **({"env": environment} if environment else {}),
                        "args": [
                            f"{name} {conf}" for name, conf in sorted(args.node_confs.items())
                        ],
                        **pods.security(user=c.SLURM_ID),
                        **pods.requests("50m", "64Mi"),
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                        "volumeMounts": [*args.site.auth.daemon_mounts(), *pods.mounts(mounted)],
                    }
                ],
                "volumes": [*args.site.auth.volumes(), *pods.volumes(mounted)],
            },
            {c.ANNOTATION_CHECKSUM: c.checksum(args.files)},
        ),
    }

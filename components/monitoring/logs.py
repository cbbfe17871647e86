"""Send the daemons' logs to a log collector; see agents/logs and docs/logs.md."""

from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.identity import rights
from components.settings import Logs as LogsSettings
from components.site import Site
from components.slurmconf.scripts import read_text

_HEADERS = "/etc/slurmstack/logs-headers"
"""Mount point of the Secret with request headers."""
_ETC = "/etc/slurmstack/logs"
_CA_FILE = "ca.pem"
_DATA = "/var/lib/slurmstack/logs"
"""Folder in which the agent stores how far it has read each log. The folder is deleted with the
pod."""


@dataclass(frozen=True)
class LogsArgs:
    site: Site
    settings: LogsSettings
    cluster_name: str
    root: Path
    """Folder of the project. The path `ca` in the settings is relative to this folder."""


class Logs(pulumi.ComponentResource):
    """One pod that sends the logs of the namespace's pods to the log collector.

    The pod reads the logs through Kubernetes' API. So it mounts no folder of a machine, and needs
    rights only in its own namespace.
    """

    def __init__(
        self, name: str, args: LogsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("logs", "Logs"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = rights.account(name, c.LOGS, args.site.namespace, child)
        reads = [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        ]
        granted = rights.grant(name, account, args.site.namespace, reads, child)
        trusted, config = _trusted(args), None
        if trusted:
            config = pods.config_map(
                f"{name}-config", c.LOGS_CONFIG, args.site.namespace, trusted, child
            ).metadata.name
        deployment = k8s.apps.v1.Deployment(
            f"{name}-agent",
            metadata={"name": c.LOGS, "namespace": args.site.namespace},
            spec=pods.workload(
                c.LOGS,
                _pod(args, account, config),
                # Restart the pod if the CA file changes, because the agent reads certificates only
                # at its start.
                {c.ANNOTATION_CHECKSUM: c.checksum(trusted)},
                # Never run two pods: both would send every line.
                **pods.ALONE,
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[granted]),
        )
        pods.metrics_service(f"{name}-service", c.LOGS, args.site.namespace, deployment, child)
        self.register_outputs({})


def _trusted(args: LogsArgs) -> dict[str, str]:
    """Return the CA file, if the settings name one. Raises `SettingsError` if it is unreadable."""
    ca = args.settings.ca
    return {_CA_FILE: read_text("monitoring.logs.ca", ca, args.root)} if ca else {}


def _pod(args: LogsArgs, account: rights.Account, config: pulumi.Output[str] | None) -> pods.Spec:
    settings, headers = args.settings, args.settings.headers_secret
    environment = {
        "NAMESPACE": args.site.namespace,
        "CLUSTER": args.cluster_name,
        "ENDPOINT": settings.endpoint,
        "LEVEL": settings.level,
        "STATE": f"{_DATA}/sent.json",
        "PORT": str(c.LOGS_PORT),
        **({"HEADERS": _HEADERS} if headers else {}),
        **({"CA": f"{_ETC}/{_CA_FILE}"} if config is not None else {}),
    }
    security = pods.security(user=c.NOBODY_ID)["securityContext"]
    return {
        **args.site.pod(c.LOGS),
        **rights.token(account),
        # Let the agent read its token and its Secret.
        "securityContext": {"fsGroup": c.NOBODY_ID},
        "containers": [
            {
                "name": "logs",
                **pods.image("agents", args.site.images),
                "args": ["agents.logs"],
                "env": pods.environment(environment),
                "ports": pods.metrics_port(c.LOGS),
                "securityContext": {**security, "readOnlyRootFilesystem": True},
                **args.site.requests(c.LOGS, "10m", "64Mi"),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    pods.mount("data", _DATA),
                    *([pods.mount("headers", _HEADERS, read_only=True)] if headers else []),
                    *([pods.mount("config", _ETC, read_only=True)] if config is not None else []),
                ],
            }
        ],
        "volumes": [
            pods.disk_volume("data"),
            *([pods.secret_volume("headers", headers)] if headers else []),
            *([pods.config_volume("config", config)] if config is not None else []),
        ],
    }

"""Users from an LDAP directory. Each pod that needs these users has an sssd daemon, which looks
them up."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pulumi

from components import conventions as c
from components import pods
from components.settings import Directory as DirectorySettings
from components.slurmconf.scripts import read_text

_OURS = c.DAEMON_IDS


def sssd_conf(settings: DirectorySettings) -> str:
    """Render sssd.conf(5) without the password, which the container adds."""
    return "".join(f"{line}\n" for line in _lines(settings))


def _lines(settings: DirectorySettings) -> Iterator[str]:
    yield "[sssd]"
    yield "services = nss, ssh"
    yield "domains = directory"
    yield "[domain/directory]"
    yield "id_provider = ldap"
    # Let sssd check no passwords: users log in only with SSH keys, which sshd checks.
    yield "auth_provider = none"
    yield "access_provider = permit"
    yield "sudo_provider = none"
    # Changes in the directory take effect within this number of seconds.
    yield "entry_cache_timeout = 300"
    yield f"ldap_uri = {', '.join(settings.uris)}"
    yield "ldap_id_use_start_tls = true"
    yield "ldap_tls_reqcert = demand"
    yield f"ldap_tls_cacert = {_ca(settings)}"
    yield f"ldap_schema = {settings.kind}"
    yield "ldap_id_mapping = false"
    yield f"ldap_search_base = {settings.base}"
    yield f"ldap_user_search_base = {settings.base}?subtree?{_people(settings.user_filter)}"
    yield f"ldap_group_search_base = {settings.base}?subtree?{_without_ours('gidNumber')}"
    yield f"ldap_user_ssh_public_key = {settings.key_attribute}"
    # Ignore lower ids, which belong to users and groups of the operating system.
    yield f"min_id = {c.USER_IDS.start}"
    # Generate a private group if the primary group has no entry.
    yield "auto_private_groups = hybrid"
    # Override homes and shells of the directory: in the jail, homes are in /home, and bash is the
    # only shell that certainly exists.
    yield "override_homedir = /home/%u"
    yield "default_shell = /bin/bash"
    if settings.bind_dn:
        yield f"ldap_default_bind_dn = {settings.bind_dn}"


def _ca(settings: DirectorySettings) -> str:
    return f"{c.DIRECTORY}/ca.pem" if settings.ca else "/etc/ssl/certs/ca-certificates.crt"


def _people(user_filter: str | None) -> str:
    return f"(&{user_filter or ''}{_without_ours('uidNumber')})"


def _without_ours(attribute: str) -> str:
    """Return a filter that excludes the ids of Slurm's daemons, which no user may have."""
    return f"(!(|{''.join(f'({attribute}={number})' for number in _OURS)}))"


@dataclass(frozen=True)
class DirectoryArgs:
    namespace: pulumi.Input[str]
    settings: DirectorySettings
    root: Path
    """Folder of the project. The path `ca` in the settings is relative to this folder."""


class Directory(pulumi.ComponentResource):
    """A ConfigMap with sssd's configuration. When it changes, running pods use the new
    configuration."""

    sssd: "Sssd"
    """Parts of pods that need the directory's users."""

    def __init__(
        self, name: str, args: DirectoryArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("directory", "Directory"), name, None, opts)
        settings = args.settings
        ca = {"ca.pem": read_text("directory.ca", settings.ca, args.root)} if settings.ca else {}
        config = pods.config_map(
            f"{name}-config",
            c.DIRECTORY_CONFIG,
            args.namespace,
            {**ca, "sssd.conf": sssd_conf(settings)},
            pulumi.ResourceOptions(parent=self),
        )
        self.sssd = Sssd(config.metadata.name, settings.password_secret)
        self.register_outputs({})


@dataclass(frozen=True)
class Sssd:
    """Parts of a pod that let it look up the directory's users: sidecar, volumes and mounts. All
    are empty if the settings have no directory."""

    config: pulumi.Input[str] | None = None
    """Name of the ConfigMap that sssd reads."""
    password: str | None = None
    """Secret with the password of `bind_dn`, in the entry `password`."""

    def sidecars(self, images: pods.Images) -> list[pods.Spec]:
        """Return init containers that start before the pod's own containers and stop after them."""
        if not self.config:
            return []
        password = pods.mount("sss-password", c.DIRECTORY_PASSWORD, read_only=True)
        sssd = {
            "name": "sssd",
            **pods.image("directory", images),
            "restartPolicy": "Always",
            # sssd starts only as root, but needs no capability.
            **pods.security(user=0),
            **pods.requests("10m", "64Mi"),
            "startupProbe": {
                **pods.command("test", "-S", f"{c.DIRECTORY_PIPES}/nss"),
                "periodSeconds": 1,
                "failureThreshold": 60,
            },
            "volumeMounts": [
                pods.mount("sss", c.DIRECTORY_OWN),
                pods.mount("sss-config", c.DIRECTORY, read_only=True),
                *([password] if self.password else []),
            ],
        }
        return [sssd]

    def volumes(self) -> list[pods.Spec]:
        if not self.config:
            return []
        return [
            pods.memory_volume("sss", "1Mi"),
            pods.config_volume("sss-config", self.config),
            *([pods.secret_volume("sss-password", self.password)] if self.password else []),
        ]

    def mounts(self) -> list[pods.Spec]:
        """Return the mounts through which a container looks up the directory's users."""
        if not self.config:
            return []
        return [{**pods.mount("sss", c.DIRECTORY_PIPES, read_only=True), "subPath": "pipes"}]

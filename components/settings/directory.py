"""Settings of an LDAP directory with users of the cluster."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from components.settings.types import (
    DistinguishedName,
    LdapUri,
    Line,
    Model,
    ProjectFile,
    SecretName,
    Word,
    cross_field,
)

_PORTS = {"ldap": 389, "ldaps": 636}
"""Default ports of servers (sources: RFC 4516; IANA's registry)."""


class Directory(Model):
    """An LDAP directory with users in addition to `users`."""

    uris: Annotated[tuple[LdapUri, ...], Field(min_length=1)]
    """Servers, such as 'ldaps://ldap.example.org', in the order in which they are tried. With
    'ldap://', StartTLS encrypts the connection."""
    base: DistinguishedName
    """Search base of users and groups, such as 'dc=example,dc=org'."""
    bind_dn: Line | None = None
    """Bind DN, such as 'cn=reader,dc=example,dc=org'; by default an anonymous bind."""
    password_secret: SecretName | None = None
    """Secret in the stack's namespace; its entry `password` is the password of bind_dn."""
    ca: ProjectFile | None = None
    """File with CA certificates (PEM) to verify the servers: a path relative to the project, read
    at deploy time. The default is Debian's CA certificates."""
    kind: Literal["rfc2307", "rfc2307bis", "ad"] = "rfc2307"
    """Schema of the directory. rfc2307: group members are user names; rfc2307bis: group members are
    entries; ad: Active Directory."""
    user_filter: Line | None = None
    """LDAP filter for users, such as '(memberOf=cn=hpc,dc=example,dc=org)'; by default all."""
    key_attribute: Word = "sshPublicKey"
    """Attribute, in a user's entry, that contains the user's public SSH keys."""

    def servers(self) -> dict[int, tuple[str, ...]]:
        """Return the servers' host names or addresses, by TCP port."""
        found = sorted(
            {
                (uri.port or _PORTS[uri.scheme], uri.hostname or "")
                for uri in map(urlsplit, self.uris)
            }
        )
        return {port: tuple(host for other, host in found if other == port) for port, _ in found}

    @model_validator(mode="after")
    def _bind_has_a_dn_and_a_password(self) -> Self:
        if self.password_secret and not self.bind_dn:
            raise cross_field(
                "password_secret",
                "has no effect without directory.bind_dn; add directory.bind_dn, or remove this "
                "setting",
            )
        # Without a password, servers treat the bind as anonymous (RFC 4513, section 5.1.2).
        if self.bind_dn and not self.password_secret:
            raise cross_field(
                "password_secret",
                "is required with directory.bind_dn; add the name of the Secret with the password "
                "of bind_dn, or remove bind_dn",
            )
        return self

    @model_validator(mode="after")
    def _user_filter_has_balanced_parentheses(self) -> Self:
        found = self.user_filter
        if found and (not found.startswith("(") or found.count("(") != found.count(")")):
            raise cross_field(
                "user_filter",
                f"'{found}': expected one filter in balanced parentheses, such as"
                " '(objectClass=person)'",
            )
        return self

"""Settings of a directory service with users of the cluster."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from components.settings.types import Domain, LdapUri, Line, Model, ProjectFile, Word, cross_field

_PORTS = {"ldap": 389, "ldaps": 636}
"""Default ports of servers (RFC 4516; IANA's registry)."""


class Directory(Model):
    """An LDAP directory with users in addition to `users`."""

    uris: Annotated[tuple[LdapUri, ...], Field(min_length=1)]
    """Servers, as 'ldaps://ldap.example.org'; each is used if those before it do not answer. With
    'ldap://' StartTLS encrypts the connection."""
    base: Line
    """Base of users and groups, as 'dc=example,dc=org'."""
    bind_dn: Line | None = None
    """Bind DN, as 'cn=reader,dc=example,dc=org'; by default an anonymous bind."""
    password_secret: Domain | None = None
    """Secret of the namespace; its entry `password` is the password of bind_dn."""
    ca: ProjectFile | None = None
    """File with certificates (PEM) that verify the servers, relative to the project; read at deploy
    time. By default Debian's."""
    kind: Literal["rfc2307", "rfc2307bis", "ad"] = "rfc2307"
    """Kind of group members. rfc2307: user names; rfc2307bis: entries; ad: those of Active
    Directory."""
    user_filter: Line | None = None
    """Filter of users' entries, as '(memberOf=cn=hpc,dc=example,dc=org)'; by default all."""
    key_attribute: Word = "sshPublicKey"
    """Attribute of an entry with public SSH keys."""

    def servers(self) -> dict[int, tuple[str, ...]]:
        """Return the names or addresses of the servers by their TCP port."""
        found = sorted(
            {
                (uri.port or _PORTS[uri.scheme], uri.hostname or "")
                for uri in map(urlsplit, self.uris)
            }
        )
        return {port: tuple(host for other, host in found if other == port) for port, _ in found}

    @model_validator(mode="after")
    def _password_has_a_bind_dn(self) -> Self:
        if self.password_secret and not self.bind_dn:
            raise cross_field(
                "password_secret",
                f"'{self.password_secret}': has no effect without bind_dn; add it",
            )
        return self

    @model_validator(mode="after")
    def _filter_is_one(self) -> Self:
        found = self.user_filter
        if found and (not found.startswith("(") or found.count("(") != found.count(")")):
            raise cross_field(
                "user_filter",
                f"'{found}': expected a filter in parentheses, as '(objectClass=person)'",
            )
        return self

"""A directory service whose people are users of the cluster."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from components.settings.types import Domain, LdapUri, Line, Model, ProjectFile, Word, cross_field

_PORTS = {"ldap": 389, "ldaps": 636}
"""Where servers listen by default (RFC 4516; IANA's registry)."""


class Directory(Model):
    """An LDAP directory, whose people are users beside those of `users`."""

    uris: Annotated[tuple[LdapUri, ...], Field(min_length=1)]
    """Its servers, as 'ldaps://ldap.example.org'; each is asked where those before it are silent.
    With 'ldap://' the connection is encrypted by StartTLS."""
    base: Line
    """Below what people and groups stand, as 'dc=example,dc=org'."""
    bind_dn: Line | None = None
    """Who asks, as 'cn=reader,dc=example,dc=org'; by default anybody."""
    password_secret: Domain | None = None
    """Secret of the namespace whose entry `password` is the password of bind_dn."""
    ca: ProjectFile | None = None
    """File with the certificates (PEM) that vouch for the servers, relative to the project; read at
    deploy time. By default those of Debian."""
    kind: Literal["rfc2307", "rfc2307bis", "ad"] = "rfc2307"
    """How groups name their members: by user name, by entry, or as Active Directory does."""
    user_filter: Line | None = None
    """Which people are users, as '(memberOf=cn=hpc,dc=example,dc=org)'; by default all."""
    key_attribute: Word = "sshPublicKey"
    """Attribute of a person that holds public SSH keys."""

    def servers(self) -> dict[int, tuple[str, ...]]:
        """Names or addresses of the servers by their TCP port."""
        found = sorted(
            {
                (uri.port or _PORTS[uri.scheme], uri.hostname or "")
                for uri in map(urlsplit, self.uris)
            }
        )
        return {port: tuple(host for other, host in found if other == port) for port, _ in found}

    @model_validator(mode="after")
    def _password_is_of_somebody(self) -> Self:
        if self.password_secret and not self.bind_dn:
            raise cross_field(
                "password_secret", f"'{self.password_secret}': counts only with bind_dn; add it"
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

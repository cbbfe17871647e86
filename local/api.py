"""A minimal client of the Kubernetes API, without a client library."""

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT = 10
"""Seconds to wait for a response of the API server."""


class ApiError(Exception):
    """The API returned an error or no response.

    `status` is the HTTP status, or 0 if there was no response.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Api:
    """The API server on a loopback port, accessed as the administrator."""

    port: int
    pki: Path

    def get(self, path: str) -> Any:
        """Return the object at a path. Raises ApiError."""
        return self._ask("GET", path)

    def merge(self, path: str, patch: dict[str, Any]) -> None:
        """Merge a patch into the object at a path. Raises ApiError."""
        self._ask("PATCH", path, patch)

    def delete(self, path: str) -> None:
        """Delete the object at a path, if it exists. Raises ApiError."""
        try:
            self._ask("DELETE", path)
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def is_ready(self) -> bool:
        try:
            self._ask("GET", "/readyz")
        except ApiError:
            return False
        return True

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
            context.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        except OSError as error:
            raise ApiError(
                0,
                f"cannot read the certificates of the API in {self.pki}: {error.strerror}",
            ) from error
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=TIMEOUT, context=context
        )
        headers = {"Content-Type": "application/merge-patch+json"} if body else {}
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, str(error) or type(error).__name__) from error
        finally:
            connection.close()
        if response.status >= http.client.BAD_REQUEST:
            raise ApiError(response.status, f"{method} {path}: {_reason(response.status, content)}")
        return _parsed(content)


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


def _reason(status: int, content: bytes) -> str:
    """Return the status with the message of the API's Status object, if there is one."""
    answer = _parsed(content)
    said = answer.get("message", "") if isinstance(answer, dict) else answer
    return f"HTTP {status}: {' '.join(str(said).split())}".removesuffix(": ")

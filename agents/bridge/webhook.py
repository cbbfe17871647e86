"""Serve the admission webhook over HTTPS: Kubernetes' API server asks about each new pod.

For the format, see
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/.
"""

import base64
import json
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from agents.bridge import admission
from agents.bridge.server import Handler, LimitedServer
from agents.bridge.wanted import Wanted
from agents.say import say
from agents.wanted import WantedError

_LONGEST = 4 * 2**20
"""Maximum length of a request in bytes. The API server accepts objects of 3 MiB."""
Object = dict[str, Any]


class Webhook(LimitedServer):
    """`folder` contains tls.crt and tls.key. `settings` reads the settings for each request, and
    may raise `WantedError`."""

    def __init__(self, port: int, folder: Path, settings: Callable[[], Wanted]) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self.settings = settings
        super().__init__(port, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        # The handshake happens in the thread of the connection, so that a slow client does not
        # delay others.
        return (
            self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False),
            address,
        )


class _Handler(Handler):
    server: Webhook

    def do_POST(self) -> None:  # noqa: N802 -- http.server calls this name
        try:
            length = int(self.headers["Content-Length"])
            if not 0 < length <= _LONGEST:
                raise ValueError("the request is empty or too long")
            answer = reviewed(json.loads(self.rfile.read(length)), self.server.settings())
        except WantedError as error:
            # The API server refuses the pod.
            say("error", f"cannot review a new pod: {error}")
            self.send(HTTPStatus.SERVICE_UNAVAILABLE)
        except (ValueError, TypeError, LookupError):
            self.send(HTTPStatus.BAD_REQUEST)
        else:
            self.send(HTTPStatus.OK, json.dumps(answer).encode())


def reviewed(review: Object, wanted: Wanted) -> Object:
    """Return the answer to an AdmissionReview. Raises `ValueError`, `TypeError` or `LookupError`
    if the review is not about a pod."""
    asked = review["request"]
    answer: Object = {"uid": asked["uid"], "allowed": True}
    try:
        changes = admission.patch(asked["object"], asked["namespace"], wanted)
    except ValueError as error:
        answer |= {"allowed": False, "status": {"message": str(error)}}
    else:
        if changes:
            text = base64.b64encode(json.dumps(changes).encode()).decode()
            answer |= {"patchType": "JSONPatch", "patch": text}
    return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": answer}

"""`python3 -m agents.logs`: send the lines of the stack's containers to a collector.

Environment variables:

    NAMESPACE    namespace of the stack
    CLUSTER      name of the cluster in Slurm
    ENDPOINT     address of a receiver of OTLP over HTTP, without /v1/logs
    LEVEL        lowest level to send: debug, info, warn, error or fatal
    STATE        file with the agent's progress
    PORT         port of the agent's metrics (docs/metrics.md)
    HEADERS      optional: folder with a file for each header of a request
    CA           optional: file with the receiver's certificate authorities
"""

import asyncio
import os
import signal
import ssl
import sys
import time
from pathlib import Path

from agents import metrics
from agents.kubernetes import KubernetesError, Streams, credentials
from agents.logs.follow import Following
from agents.logs.lines import Severity
from agents.logs.metrics import Counts
from agents.logs.pods import Api
from agents.logs.send import Receiver, Sender
from agents.logs.sent import Sent
from agents.say import say


async def send(api: Api, receiver: Receiver, environment: dict[str, str]) -> None:
    """Send lines until SIGTERM. After SIGTERM, stop reading and send the remaining lines."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    counts, sent = Counts(), Sent(Path(environment["STATE"]), time.time_ns())
    metrics.serve(counts, int(environment["PORT"]))
    sender = Sender(receiver, environment["CLUSTER"], environment["NAMESPACE"], sent, counts)
    level = Severity[environment["LEVEL"].upper()]
    following = Following(api, sender.lines.put, level, sent, counts)
    stopping = asyncio.create_task(stop.wait())
    reading, sending = asyncio.create_task(following.run()), asyncio.create_task(sender.run())
    await asyncio.wait({stopping, reading, sending}, return_when=asyncio.FIRST_COMPLETED)
    for task in (reading, sending):
        if task.done():
            task.result()  # raises the error that ended the task
    reading.cancel()
    await asyncio.wait({reading})
    await sender.finish()
    sending.cancel()


def main() -> int:
    environment = dict(os.environ)
    headers, ca = environment.get("HEADERS"), environment.get("CA")
    try:
        api = Api(environment["NAMESPACE"], Streams(*credentials()))
    except KubernetesError as error:
        say("error", f"the log agent cannot start: {error}")
        return 1
    try:
        verify = ssl.create_default_context(cafile=ca) if ca else True
    except OSError as error:
        problem = (
            f"monitoring.logs.ca: {error}; expected a file with PEM certificates; correct this "
            "setting"
        )
        say("error", f"the log agent cannot start: {problem}")
        return 1
    receiver = Receiver(environment["ENDPOINT"], Path(headers) if headers else None, verify)
    asyncio.run(send(api, receiver, environment))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Settings with two users in two accounts."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import Cluster

STUDENT = 2001


def two_accounts(values: dict[str, Any]) -> None:
    researcher = values["users"][0]
    values["users"].append({**researcher, "name": "student", "uid": STUDENT})
    values.setdefault("accounting", {})["accounts"] = [
        {"name": "physics", "users": [{"name": "researcher"}]},
        {"name": "biology", "users": [{"name": "student"}]},
    ]


@pytest.fixture(scope="package")
def accounts(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with the two accounts. The teardown restores the original settings."""
    with cluster.edited(two_accounts):
        cluster.deploy("up")
        yield cluster
    cluster.deploy("up")

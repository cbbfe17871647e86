"""The database's password is in its Secret, and nowhere else."""

import base64

import pytest

from tests.support.cluster import Cluster


@pytest.fixture(scope="module")
def password(cluster: Cluster) -> str:
    encoded = cluster.kubectl(
        "get", "secret", "database-password", "-o", "jsonpath={.data.password}"
    )
    found = base64.b64decode(encoded).decode()
    assert len(found) >= 40
    return found


@pytest.mark.parametrize(
    ("component", "container"), [("accounting", "slurmdbd"), ("database", "mariadb")]
)
def test_no_process_has_it_in_its_arguments_or_its_environment(
    cluster: Cluster, password: str, component: str, container: str
) -> None:
    (pod,) = cluster.pods(component)
    name = pod["metadata"]["name"]

    told = cluster.in_pod(
        name,
        container,
        "sh",
        "-c",
        "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; true",
    )

    assert container in told
    assert password not in told


def test_users_reach_neither_the_database_nor_its_password(cluster: Cluster) -> None:
    where = "/etc/slurmstack/database_password /run/slurmdbd /var/lib/mysql"

    seen = cluster.run(f"ls -d {where} 2>/dev/null || true; srun ls -d {where} 2>/dev/null || true")

    assert seen == ""

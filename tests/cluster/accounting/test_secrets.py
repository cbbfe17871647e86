"""Only the Secret contains the database's password."""

import base64

import pytest

from tests.support.cluster import Cluster


@pytest.fixture(scope="module")
def password(cluster: Cluster) -> str:
    encoded = cluster.kubectl(
        "get", "secret", "database-password", "-o", "jsonpath={.data.password}"
    )
    decoded = base64.b64decode(encoded).decode()
    assert len(decoded) >= 40
    return decoded


@pytest.mark.parametrize(
    ("component", "container"), [("accounting", "slurmdbd"), ("database", "mariadb")]
)
def test_no_process_has_the_password_in_arguments_or_environment(
    cluster: Cluster, password: str, component: str, container: str
) -> None:
    (pod,) = cluster.pods(component)
    name = pod["metadata"]["name"]

    output = cluster.in_pod(
        name,
        container,
        "sh",
        "-c",
        "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; true",
    )

    assert container in output
    assert password not in output


def test_users_cannot_reach_the_database_or_its_password(cluster: Cluster) -> None:
    where = "/etc/slurmstack/database_password /run/slurmdbd /var/lib/mysql"

    output = cluster.run(
        f"ls -d {where} 2>/dev/null || true; srun ls -d {where} 2>/dev/null || true"
    )

    assert output == ""

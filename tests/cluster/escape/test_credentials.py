"""Nobody has a credential of another's, be it munge's or a token."""

import base64
import json
import time

import pytest

from agents.slurm import make_token
from tests.cluster.escape.victim import NODE, Victim
from tests.support.cluster import Cluster
from tests.support.commands import execute

API = "http://rest:6820/slurm/v0.0.41"
pytestmark = pytest.mark.usefixtures("unharmed")


@pytest.mark.parametrize("become", ["", "unshare --user --map-root-user "])
def test_munge_vouches_for_no_more_than_who_asks(cluster: Cluster, become: str) -> None:
    said = cluster.run(f"srun {become}munge --no-input | unmunge")

    assert "STATUS:          Success" in said
    assert "UID:             researcher (2000)" in said


@pytest.mark.parametrize("where", ["", "srun "])
def test_a_credential_counts_once(cluster: Cluster, where: str) -> None:
    twice = "munge -n >c; unmunge <c 2>&1; unmunge <c 2>&1; rm c"
    said = cluster.run(f"{where}sh -c 'cd $(mktemp -d); {twice}'", check=False)

    assert said.index("Success") < said.index("Replayed credential")


def test_a_changed_credential_is_none(cluster: Cluster) -> None:
    said = cluster.run("munge -n | sed '/MUNGE:/y/abcdefgh/hgfedcba/' | unmunge 2>&1", check=False)

    assert "Invalid credential" in said


def test_a_credential_for_another_user_cannot_be_opened(cluster: Cluster, victim: Victim) -> None:
    credential = victim.run("munge --string=hidden --restrict-uid=games").strip()

    said = cluster.run(f"echo '{credential}' | unmunge 2>&1", check=False)

    assert "Unauthorized credential" in said
    assert "hidden" not in said


def unsigned(user: str) -> str:
    """A token that says of itself that it needs no signature."""
    claims = {"sun": user, "iat": int(time.time()), "exp": int(time.time()) + 600}
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join(part.rstrip("=") for part in encoded) + "."


OWN = "$(scontrol token | cut -d= -f2)"
TOKENS = {
    "one's own": (OWN, ""),
    "one's own, in the other user's name": (OWN, "games"),
    "one's own, in root's name": (OWN, "root"),
    "one's own, in SlurmUser's name": (OWN, "slurm"),
    "none, in root's name": ("", "root"),
    "unsigned": (unsigned("root"), ""),
    "signed with another key": (make_token(b"not the key", "root", 600), "root"),
    "signed with an empty key": (make_token(b"", "slurm", 600), "slurm"),
}


@pytest.mark.parametrize(("token", "name"), TOKENS.values(), ids=TOKENS)
def test_by_no_token_does_a_user_change_anothers_job(
    cluster: Cluster, victim: Victim, token: str, name: str
) -> None:
    headers = f'-H "X-SLURM-USER-TOKEN: {token}"' + (
        f" -H X-SLURM-USER-NAME:{name}" if name else ""
    )
    shorten = (
        f'curl -sm 20 {headers} --json \'{{"time_limit": {{"set": true, "number": 1}}}}\''
        f" {API}/job/{victim.job}"
    )

    code = cluster.run(f"{shorten} -o /dev/null -w '%{{http_code}}'")

    assert code.startswith(("4", "5")), cluster.run(shorten)


def test_a_step_is_not_launched_in_another_users_name(cluster: Cluster, victim: Victim) -> None:
    """By what a job's environment says of its user."""
    forged = "SLURM_JOB_UID=5 SLURM_JOB_USER=games SLURM_JOB_GID=60 USER=games LOGNAME=games"

    assert cluster.run(f"env {forged} srun --nodelist={NODE} id -un") == "researcher"
    assert cluster.run(f"srun --nodelist={NODE} env {forged} munge -n | unmunge").count("2000") == 2


@pytest.mark.parametrize("name", ["root", "games", "slurm", "munge", "nobody", "sshd"])
def test_no_other_account_logs_in_with_a_users_key(cluster: Cluster, name: str) -> None:
    answer = cluster.ssh("id", check=False, user=name)

    assert answer.returncode == 255
    assert "Permission denied (publickey)" in answer.stderr


def test_a_client_sets_nothing_for_the_linker_or_the_shell(cluster: Cluster) -> None:
    config = str(cluster.directory / "ssh_config")
    names = ("LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "SLURM_CONF", "PATH")
    options = [f"-oSetEnv={' '.join(f'{name}=/home/researcher/injected' for name in names)}"]

    said = execute(["ssh", "-F", config, *options, "login", "env"]).stdout

    assert "HOME=/home/researcher" in said
    assert "injected" not in said


def test_sftp_sees_the_jail_alone(cluster: Cluster) -> None:
    config = str(cluster.directory / "ssh_config")
    batch = "ls /etc/passwd\n-ls /run/sshd/host_key\n-ls /mnt/jail/etc\n-ls /etc/slurmstack\n"
    batch += "-ls /proc/1/root/etc\ncd /\ncd ../../..\n-ls run/sshd/host_key\n"

    answer = execute(["sftp", "-F", config, "-b", "-", "login"], stdin=batch)

    found = [line for line in answer.stdout.splitlines() if not line.startswith("sftp>")]
    assert [line.strip() for line in found] == ["/etc/passwd"]
    assert answer.stderr.count("not found") + answer.stderr.count("Permission denied") == 5

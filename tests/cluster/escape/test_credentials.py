"""A user cannot get another user's munge credential or token."""

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
def test_munge_credential_always_contains_its_senders_uid(cluster: Cluster, become: str) -> None:
    output = cluster.run(f"srun {become}munge --no-input | unmunge")

    assert "STATUS:          Success" in output
    assert "UID:             researcher (2000)" in output


@pytest.mark.parametrize("where", ["", "srun "])
def test_munge_credential_is_accepted_only_once(cluster: Cluster, where: str) -> None:
    twice = "munge -n >c; unmunge <c 2>&1; unmunge <c 2>&1; rm c"
    output = cluster.run(f"{where}sh -c 'cd $(mktemp -d); {twice}'", check=False)

    assert output.index("Success") < output.index("Replayed credential")


def test_modified_munge_credential_is_refused(cluster: Cluster) -> None:
    output = cluster.run(
        "munge -n | sed '/MUNGE:/y/abcdefgh/hgfedcba/' | unmunge 2>&1", check=False
    )

    assert "Invalid credential" in output


def test_user_cannot_decode_another_users_munge_credential(
    cluster: Cluster, victim: Victim
) -> None:
    credential = victim.run("munge --string=hidden --restrict-uid=games").strip()

    output = cluster.run(f"echo '{credential}' | unmunge 2>&1", check=False)

    assert "Unauthorized credential" in output
    assert "hidden" not in output


def unsigned(user: str) -> str:
    """Return a token with the header `"alg": "none"`, that is, without a signature."""
    claims = {"sun": user, "iat": int(time.time()), "exp": int(time.time()) + 600}
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join(part.rstrip("=") for part in encoded) + "."


OWN = "$(scontrol token | cut -d= -f2)"
TOKENS = {
    "own token": (OWN, ""),
    "own token, other user's name": (OWN, "games"),
    "own token, root's name": (OWN, "root"),
    "own token, SlurmUser's name": (OWN, "slurm"),
    "no token, root's name": ("", "root"),
    "unsigned token": (unsigned("root"), ""),
    "token signed with another key": (make_token(b"not the key", "root", 600), "root"),
    "token signed with an empty key": (make_token(b"", "slurm", 600), "slurm"),
}


@pytest.mark.parametrize(("token", "name"), TOKENS.values(), ids=TOKENS)
def test_user_cannot_change_another_users_job_with_any_token(
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


def test_forged_environment_does_not_start_a_step_as_another_user(
    cluster: Cluster, victim: Victim
) -> None:
    forged = "SLURM_JOB_UID=5 SLURM_JOB_USER=games SLURM_JOB_GID=60 USER=games LOGNAME=games"

    assert cluster.run(f"env {forged} srun --nodelist={NODE} id -un") == "researcher"
    assert cluster.run(f"srun --nodelist={NODE} env {forged} munge -n | unmunge").count("2000") == 2


@pytest.mark.parametrize("name", ["root", "games", "slurm", "munge", "nobody", "sshd"])
def test_users_ssh_key_does_not_open_another_account(cluster: Cluster, name: str) -> None:
    answer = cluster.ssh("id", check=False, user=name)

    assert answer.returncode == 255
    assert "Permission denied (publickey)" in answer.stderr


def test_ssh_client_cannot_set_environment_variables(cluster: Cluster) -> None:
    config = str(cluster.directory / "ssh_config")
    names = ("LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "SLURM_CONF", "PATH")
    options = [f"-oSetEnv={' '.join(f'{name}=/home/researcher/injected' for name in names)}"]

    output = execute(["ssh", "-F", config, *options, "login", "env"]).stdout

    assert "HOME=/home/researcher" in output
    assert "injected" not in output


def test_sftp_sees_only_the_jail(cluster: Cluster) -> None:
    config = str(cluster.directory / "ssh_config")
    batch = "ls /etc/passwd\n-ls /run/sshd/host_key\n-ls /mnt/jail/etc\n-ls /etc/slurmstack\n"
    batch += "-ls /proc/1/root/etc\ncd /\ncd ../../..\n-ls run/sshd/host_key\n"

    answer = execute(["sftp", "-F", config, "-b", "-", "login"], stdin=batch)

    lines = [line for line in answer.stdout.splitlines() if not line.startswith("sftp>")]
    assert [line.strip() for line in lines] == ["/etc/passwd"]
    assert answer.stderr.count("not found") + answer.stderr.count("Permission denied") == 5

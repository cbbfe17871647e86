"""People from a real LDAP server log in and submit jobs; excluded entries are not users."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from components import conventions as c
from components.identity.directory import sssd_conf
from components.settings import Directory
from tests.container.login import directory
from tests.container.login.node import LoginNode
from tests.support.containers import Start, put
from tests.support.slurmctld import Slurmctld, start_worker
from tests.support.waiting import eventually

FIRST = Directory(
    uris=(f"ldaps://{directory.HOST}",),
    base=directory.BASE,
    bind_dn=directory.READER,
    password_secret="reader",
    ca="ca.pem",
    user_filter="(title=member)",
)


ANOTHER_HOME = "M:/home/absent:/bin/sh\\c"
"""Full name that contains an entry of passwd. In many directories, people can edit their full name,
so a user could try to become another user in this way."""


@dataclass(frozen=True)
class Served:
    """A login node with an sssd that queries a directory."""

    login: LoginNode
    sssd: Slurmctld
    worker: Slurmctld
    certificate: str

    def install(self, wanted: Directory, password: str = directory.PASSWORD) -> None:
        """Install the configuration of sssd, as the kubelet does."""
        for folder, files in (
            (c.DIRECTORY, {"sssd.conf": sssd_conf(wanted), "ca.pem": self.certificate}),
            (c.DIRECTORY_PASSWORD, {"password": password}),
        ):
            swap(self.sssd, folder, files)

    def edit(self, wanted: Directory, known_user: str = "lovelace") -> None:
        """Install another configuration, and wait until `getent` finds the user `known_user`."""
        before = self.log().count("runs with its new configuration")
        self.install(wanted)
        eventually(
            "sssd runs with the new configuration",
            lambda: self.log().count("runs with its new configuration") > before,
        )
        look_up = f"getent passwd {known_user} || true"
        eventually(f"{known_user} is known", lambda: known_user in self.login.daemons.run(look_up))

    def log(self) -> str:
        return self.sssd.run("cat /tmp/log", user="root")


def swap(container: Slurmctld, folder: str, files: dict[str, str]) -> None:
    """Replace all files of a mounted volume atomically."""
    version = f"..{abs(hash(frozenset(files.items())))}"
    put(container.container, {f"{folder}/{version}/{name}": text for name, text in files.items()})
    links = "; ".join(f"ln -sfn ..data/{name} {name}" for name in files)
    container.run(
        f"cd {folder} && ln -sfn {version} ..new && mv -T ..new ..data; {links}", user="root"
    )


@pytest.fixture(scope="module")
def served(started: LoginNode) -> Iterator[Served]:
    directory.build_image()
    key = (started.folder / "key.pub").read_text().strip()
    with_key = [
        directory.person("lovelace", 30_001, key),
        directory.person("babbage", 30_002, key, title="guest"),
        directory.person("imposter", c.SLURM_ID, key),
        directory.person("toor", 0, key),
        directory.person("mallory", 30_003, key, gecos=ANOTHER_HOME),
        directory.group("physics", 30_100, "lovelace"),
        directory.group("slurmish", c.MUNGE_ID, "lovelace"),
    ]
    start: Start = started.start_container
    slapd = start(directory.IMAGE, ours=False)
    certificate = directory.serve(slapd, with_key)
    sssd = Slurmctld(
        start(
            "directory",
            cap_drop=["ALL"],
            extra_hosts={directory.HOST: Slurmctld(slapd).address},
            volumes={started.pipes: {"bind": c.DIRECTORY_OWN}},
        )
    )
    # Give the volume to the pod's group, as Kubernetes does in a pod (setting fsGroup).
    group = f"chgrp {c.MUNGE_ID} {c.DIRECTORY_OWN} && chmod 2777 {c.DIRECTORY_OWN}"
    started.daemons.run(group, user="root")
    volumes = {started.pipes: {"bind": c.DIRECTORY_OWN}, started.jail: {"bind": c.JAIL}}
    node = (start, started.secret, "cpu-0", "CPUs=2 RealMemory=1000 Feature=cpu")
    worker = start_worker(*node, started.slurmctld, volumes=volumes)
    eventually("the node is idle", lambda: "idle" in worker.run("sinfo --noheader --format=%T"))
    running = Served(started, sssd, worker, certificate)
    running.install(FIRST)
    sssd.container.exec_run(
        ["bash", "-c", f"exec {c.PROGRAMS}/sssd >/tmp/log 2>&1"], user="root", detach=True
    )
    eventually("sssd listens", lambda: "nss" in sssd.run(f"ls {c.DIRECTORY_OWN}/pipes || true"))
    started.daemons.run(
        f"for root in '' {c.JAIL}; do mkdir -p $root{c.DIRECTORY_PIPES} && "
        f"mount --bind -o ro {c.DIRECTORY_OWN}/pipes $root{c.DIRECTORY_PIPES}; done",
        user="root",
    )
    worker.run(
        f"mkdir -p {c.DIRECTORY_PIPES} && "
        f"mount --bind -o ro {c.DIRECTORY_OWN}/pipes {c.DIRECTORY_PIPES}",
        user="root",
    )
    started.slurmctld.run(
        f"rm -rf {c.DIRECTORY_PIPES} && ln -s {c.DIRECTORY_OWN}/pipes {c.DIRECTORY_PIPES}",
        user="root",
    )
    yield running
    # Stop this node, because another test file starts a node with the same name.
    worker.container.kill()
    started.slurmctld.run("scancel --nodelist=cpu-0; scontrol delete nodename=cpu-0")


def test_directory_user_has_a_home_after_login(served: Served) -> None:
    output = served.login.answer("id -un; id -Gn; pwd; stat -c '%U %a' .", user="lovelace")

    assert output.splitlines() == ["lovelace", "lovelace physics", "/home/lovelace", "lovelace 700"]
    assert served.login.answer("ls -a", user="lovelace").split().count(".bashrc") == 1


def test_passwd_entry_injected_by_a_full_name_is_ignored(served: Served) -> None:
    home = served.login.answer("stat -c '%n %U' ~", user="mallory")

    assert home == "/home/mallory mallory"
    assert "absent" not in served.login.answer("ls /home").split()


def test_jobs_of_a_directory_user_show_the_users_name(served: Served) -> None:
    job = served.login.answer("sbatch --hold --parsable --wrap true", user="lovelace")

    listed = served.login.answer("squeue --me --noheader --format='%A %u'", user="lovelace")
    assert listed == f"{job} lovelace"
    served.login.answer("scancel --me", user="lovelace")


def test_job_of_a_directory_user_has_the_users_groups(served: Served) -> None:
    served.login.answer(
        "sbatch --wait --output=out"
        " --wrap 'id -un; id -Gn; pwd; cat /var/lib/slurmstack/jail-refresh'",
        user="lovelace",
    )

    assert served.login.answer("cat out", user="lovelace").splitlines() == [
        "lovelace",
        "lovelace physics",
        "/home/lovelace",
        "0",
    ]


def test_users_from_the_settings_can_also_log_in(served: Served) -> None:
    assert served.login.answer("id -un") == "researcher"


@pytest.mark.parametrize("name", ["babbage", "imposter", "toor", "nobody-at-all"])
def test_excluded_directory_entries_are_not_users(served: Served, name: str) -> None:
    assert served.login.ssh("true", user=name).returncode == 255
    assert served.login.answer(f"getent passwd {name} || echo none") == "none"


def test_directory_groups_with_a_daemon_id_are_ignored(served: Served) -> None:
    groups = served.login.answer("id -G", user="lovelace").split()

    assert groups == ["30001", "30100"]


def test_changed_user_filter_applies_without_a_restart(served: Served) -> None:
    served.edit(FIRST.model_copy(update={"user_filter": "(title=guest)"}), known_user="babbage")
    try:
        assert served.login.answer("id -u", user="babbage") == "30002"
    finally:
        served.edit(FIRST)
    assert served.login.answer("id -u", user="lovelace") == "30001"


def test_sssd_uses_starttls_for_ldap_addresses(served: Served) -> None:
    served.edit(FIRST.model_copy(update={"uris": (f"ldap://{directory.HOST}",)}))
    try:
        assert served.login.answer("id -u", user="lovelace") == "30001"
    finally:
        served.edit(FIRST)


def test_users_cannot_replace_the_sockets_of_sssd(served: Served) -> None:
    tries = f"touch {c.DIRECTORY_PIPES}/x || rm -f {c.DIRECTORY_PIPES}/nss; ls {c.DIRECTORY_PIPES}"

    assert "nss" in served.login.answer(tries, user="lovelace").split()

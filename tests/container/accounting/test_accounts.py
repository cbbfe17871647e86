"""The program agents.accounts applies the settings' accounts to slurmdbd while jobs use them."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from components.settings.accounts import Account, AccountUser, Qos
from components.slurmconf import wanted_accounts
from tests.support import open_shells
from tests.support.accounting import NODE, USERS, Cluster, one_cluster
from tests.support.containers import put
from tests.support.slurmctld import BRIEF, Slurmctld, resume
from tests.support.stack import settings
from tests.support.waiting import eventually

Values = dict[str, Any]
LONG = "--output=/dev/null --wrap 'sleep 600'"
WANTED = "/tmp/wanted.json"


def config(**accounting: Any) -> Callable[[Values], object]:
    def edit(values: Values) -> None:
        values["accounting"] = accounting
        weights = {"type": "multifactor", "fairshare": 100_000, "qos": 1000}
        values["slurm"] = {
            "priority": weights,
            "timeouts": BRIEF,
            # slurmctld computes fair shares from the usage once in this period (in minutes), and
            # when it reads its configuration again.
            "extra": {"slurm.conf": ["PriorityCalcPeriod=1"]},
        }

    return edit


@dataclass(frozen=True)
class Accounts:
    """A cluster, and a container that applies accounts to it."""

    cluster: Cluster
    agents: Slurmctld

    def apply(self, *options: str, **accounting: Any) -> tuple[int, str]:
        """Run agents.accounts as a deploy of these settings does. Return exit code and output."""
        text = wanted_accounts(settings(config(**accounting)))
        put(self.agents.container, {WANTED: text})
        program = ["python3", "-m", "agents.accounts", f"--wanted={WANTED}", *options]
        # Use `timeout`, because the program waits for Slurm without a limit.
        command = ["timeout", "120", *program]
        code, output = open_shells.run(self.agents.container, command, "slurm")
        return code, output.strip()

    def to(self, **accounting: Any) -> list[str]:
        """Apply the accounts, which must succeed, and return the actions of the plan."""
        code, output = self.apply(**accounting)
        *lines, last = output.splitlines()
        assert (code, last) == (0, "all accounts, users and QOS match the settings"), output
        return [line.partition(":")[0] for line in lines]

    def settle(self) -> None:
        """Wait until slurmctld has completed every reconfiguration.

        `scontrol reconfigure` returns earlier. During a reconfiguration, slurmctld exits if
        slurmdbd or the QOS of a partition is missing, and nothing in this test restarts slurmctld.
        """

        def is_settled() -> bool:
            log = self.cluster.slurmctld.log()
            requests = log.count("Processing Reconfiguration Request")
            return log.count("Running as primary controller") > requests

        eventually("slurmctld has read its configuration", is_settled)

    def admin(self, *words: str) -> str:
        """Run sacctmgr as an administrator, and return its output."""
        quoted = " ".join(f"'{word}'" for word in words)
        return self.cluster.slurmctld.run(f"sacctmgr --immediate --parsable2 --noheader {quoted}")

    def shown(self, account: str, user: str, field: str) -> str:
        where = (f"account={account}", f"user={user}", f"format={field}")
        return self.admin("show", "association", "wopl", "where", *where).strip()

    def names(self, entity: str) -> set[str]:
        return set(
            self.admin(
                "show", entity, "format=name" if entity == "qos" else "format=account"
            ).split()
        )

    def refused(self, command: str, user: str = "researcher") -> str:
        """Run a user's command, which must fail, and return its output."""
        ids = f"{USERS[user]}:{USERS[user]}"
        code, output = open_shells.run(self.cluster.worker.container, command, ids, workdir="/tmp")
        assert code != 0, output
        return output.strip()

    def submit(self, options: str, user: str = "researcher") -> str:
        return self.cluster.user(f"sbatch --parsable {options} {LONG}", user)

    def state(self, job: str, field: str = "%T") -> str:
        return self.cluster.slurmctld.run(f"squeue --noheader -j {job} -o '{field}'").strip()


@pytest.fixture(scope="module")
def prepared() -> Iterator[Accounts]:
    with one_cluster(settings(config())) as cluster:
        yield Accounts(cluster, cluster.join("agents"))


@pytest.fixture
def accounts(prepared: Accounts) -> Iterator[Accounts]:
    """A cluster with only the default accounts. After the test, all jobs are cancelled."""
    prepared.cluster.revive()
    prepared.to()
    prepared.settle()
    yield prepared
    prepared.cluster.slurmctld.run("squeue --noheader --all --format=%A | xargs -r scancel")
    eventually(
        "no job is left", lambda: not prepared.cluster.slurmctld.run("squeue --noheader --all")
    )
    resume(prepared.cluster.slurmctld, NODE)


LAB: Values = {"name": "lab", "users": [{"name": "researcher"}]}


def test_every_configured_user_can_submit_jobs(accounts: Accounts) -> None:
    for user in USERS:
        assert accounts.state(accounts.submit("", user), "%a") == "users"


def test_second_run_changes_nothing(accounts: Accounts) -> None:
    assert accounts.to(accounts=[LAB])
    assert accounts.to(accounts=[LAB]) == []


def test_dry_run_prints_the_plan_and_changes_nothing(accounts: Accounts) -> None:
    code, output = accounts.apply("--dry-run", accounts=[LAB])

    assert code == 4
    assert "+ account lab" in output.splitlines()
    assert "lab" not in accounts.names("account")


def test_dry_run_can_print_json(accounts: Accounts) -> None:
    _, output = accounts.apply("--dry-run", "--json", accounts=[LAB])

    assert {"action": "add", "kind": "account", "name": "lab"}.items() <= json.loads(output)[
        "actions"
    ][0].items()


def test_accounts_users_and_qos_follow_edits_of_the_settings(accounts: Accounts) -> None:
    below: Values = {
        "name": "below",
        "parent": "lab",
        "users": [{"name": "student", "max_jobs": 3}],
    }
    high = {"name": "high", "priority": 5, "preempt": ["normal"], "flags": ["DenyOnLimit"]}

    assert set(accounts.to(accounts=[LAB, below], qos=[high])) == {
        *("+ qos high", "+ account lab", "+ account below"),
        *("+ user researcher account lab", "+ user student account below"),
        *("- user researcher account users", "- user student account users", "- account users"),
    }
    below["users"][0] = {"name": "student", "fairshare": 9}
    assert accounts.to(accounts=[LAB, below], qos=[{**high, "priority": 6}]) == [
        "~ qos high",
        "~ user student account below",
    ]
    assert accounts.shown("below", "student", "fairshare,maxjobs") == "9|"
    assert accounts.admin("show", "qos", "where", "name=high", "format=priority") == "6\n"
    accounts.to()
    assert accounts.names("account") == {"root", "users"}
    assert accounts.names("qos") == {"normal"}


def test_sets_and_clears_every_limit(accounts: Accounts) -> None:
    many = {
        **dict.fromkeys(("priority", "min_prio_thresh", "grp_jobs", "grp_submit_jobs"), 7),
        "grp_jobs_accrue": 7,
        **{key: {"cpu": 70} for key in ("grp_tres", "grp_tres_mins", "grp_tres_run_mins")},
        **{key: {"mem": "1500MiB"} for key in ("max_tres_per_job", "max_tres_per_node")},
        "max_tres_mins_per_job": {"node": 70},
        **dict.fromkeys(("grp_wall", "max_wall"), "2-12:30:00"),
    }
    of_associations = {
        **dict.fromkeys(("max_jobs", "max_jobs_accrue", "max_submit_jobs", "fairshare"), 7),
        "qos": ["normal", "all"],
        "default_qos": "normal",
    }
    each = ("jobs", "jobs_accrue", "submit_jobs")
    of_qos = {
        **{f"max_{what}_per_{whom}": 7 for what in each for whom in ("account", "user")},
        **{
            f"max_{what}_per_{whom}": {"cpu": 7}
            for what in ("tres", "tres_run_mins")
            for whom in ("account", "user")
        },
        **dict.fromkeys(("usage_factor", "usage_threshold", "limit_factor"), 0.5),
        "min_tres_per_job": {"cpu": 1},
        "preempt_exempt_time": "00:10:00",
        "preempt_mode": "requeue",
        "grace_time": 90,
    }
    lab = {"name": "lab", **many, **of_associations, "organization": "West"}
    user = {"name": "student", **many, **of_associations}
    every = {"name": "all", **many, **of_qos}
    # Other tests set these fields.
    assert Account.model_fields.keys() - lab == {"description", "parent", "users"}
    assert AccountUser.model_fields.keys() - user == {"default", "partitions"}
    assert Qos.model_fields.keys() - every == {"flags", "preempt"}

    accounts.to(accounts=[{**lab, "users": [user]}], qos=[every])
    bare = {"accounts": [{"name": "lab", "users": [{"name": "student"}]}], "qos": [{"name": "all"}]}

    assert accounts.to(**bare) == ["~ qos all", "~ account lab", "~ user student account lab"]
    assert accounts.to(**bare) == []
    assert accounts.shown("lab", "student", "grptres,maxwall,maxjobs,fairshare,qos") == "|||1|"


def test_sets_and_resets_admin_levels_and_default_accounts(accounts: Accounts) -> None:
    two: list[Values] = [
        {"name": "lab", "users": [{"name": "student"}]},
        {"name": "hall", "users": [{"name": "student", "default": True, "max_jobs": 4}]},
    ]

    def student() -> str:
        return accounts.admin("show", "user", "student", "format=defaultaccount,admin").strip()

    accounts.to(accounts=two, operators=["student"])
    assert student() == "hall|Operator"
    assert accounts.shown("lab", "student", "maxjobs") == ""
    accounts.to(accounts=two)
    assert student() == "hall|None"
    accounts.to(accounts=two[:1])
    assert student() == "lab|None"


def test_keeps_changes_that_an_administrator_made(accounts: Accounts) -> None:
    accounts.to(accounts=[LAB])
    accounts.admin("add", "account", "theirs", "fairshare=3")
    accounts.admin("add", "user", "student", "account=theirs", "maxjobs=2")
    accounts.admin("modify", "user", "researcher", "where", "account=lab", "set", "maxjobs=5")

    assert accounts.to(accounts=[LAB]) == []
    assert accounts.shown("theirs", "student", "maxjobs") == "2"
    assert accounts.shown("lab", "researcher", "maxjobs") == "5"
    accounts.admin("modify", "user", "student", "set", "defaultaccount=users")
    accounts.admin("delete", "account", "theirs")


def test_restores_configured_values_that_an_administrator_changed(accounts: Accounts) -> None:
    lab = {"name": "lab", "users": [{"name": "student", "max_jobs": 2}, {"name": "researcher"}]}
    accounts.to(accounts=[lab])
    accounts.admin("modify", "user", "student", "where", "account=lab", "set", "maxjobs=9")
    accounts.admin("delete", "user", "researcher", "where", "account=lab")

    assert accounts.to(accounts=[lab]) == [
        "+ user researcher account lab",
        "~ user student account lab",
    ]
    assert accounts.shown("lab", "student", "maxjobs") == "2"


def test_account_with_jobs_is_removed_only_if_configured(accounts: Accounts) -> None:
    accounts.to(accounts=[LAB])
    running, waiting = accounts.submit("-A lab"), accounts.submit("-A lab --hold")
    eventually("the job runs", lambda: accounts.state(running) == "RUNNING")

    code, output = accounts.apply()

    assert code == 3
    assert "account lab: cannot be removed: 2 jobs use it" in output
    assert "add 'account lab' to 'accounting.remove_with_jobs'" in output
    assert "lab" in accounts.names("account")
    assert (accounts.state(running), accounts.state(waiting)) == ("RUNNING", "PENDING")

    accounts.to(remove_with_jobs=["account lab"])
    assert "lab" not in accounts.names("account")
    assert not accounts.cluster.slurmctld.run("squeue --noheader --all")


def test_edit_does_not_affect_running_jobs(accounts: Accounts) -> None:
    accounts.to(accounts=[LAB])
    job = accounts.submit("-A lab")
    eventually("the job runs", lambda: accounts.state(job) == "RUNNING")
    began = accounts.state(job, "%S %N %a")

    accounts.to(
        accounts=[
            {"name": "west"},
            {"name": "lab", "parent": "west", "users": [{"name": "researcher", "max_jobs": 1}]},
        ]
    )

    assert accounts.state(job) == "RUNNING"
    assert accounts.state(job, "%S %N %a") == began
    second = accounts.submit("-A lab")
    eventually("the second job waits", lambda: accounts.state(second, "%r") == "AssocMaxJobsLimit")


def test_limit_in_a_partition_is_set_and_removed(accounts: Accounts) -> None:
    def lab(*partitions: Values, spare: bool = False) -> list[Values]:
        user = {"name": "researcher", "default": True, "partitions": [*partitions]}
        others = [{"name": "spare", "users": [{"name": "researcher"}]}] if spare else []
        return [{"name": "lab", "users": [user]}, *others]

    one = {"name": "main", "max_jobs": 1}
    accounts.to(accounts=lab(one))
    assert accounts.to(accounts=lab(one)) == []
    first, second = accounts.submit("-A lab"), accounts.submit("-A lab")
    eventually("the second job waits", lambda: accounts.state(second, "%r") == "AssocMaxJobsLimit")

    assert accounts.to(accounts=lab({**one, "max_jobs": 2})) == [
        "~ user researcher account lab partition main"
    ]
    eventually("the second job runs", lambda: accounts.state(second) == "RUNNING")

    accounts.cluster.user(f"scancel {first} {second}")
    eventually("no job is left", lambda: not accounts.cluster.slurmctld.run("squeue -h --all"))
    code, output = accounts.apply(accounts=lab())
    assert code == 3
    assert "Slurm cannot remove a partition's association" in output
    assert accounts.to(accounts=lab(spare=True))[-1] == (
        "- user researcher account lab partition main"
    )
    assert accounts.admin("show", "user", "researcher", "format=defaultaccount").strip() == "lab"


@pytest.mark.parametrize(
    ("limits", "command", "message"),
    [
        ({"max_submit_jobs": 0}, "", "AssocMaxSubmitJobLimit"),
        ({}, "-A other", "Invalid account or account/partition combination specified"),
        ({}, "--qos=high", "Invalid qos specification"),
        ({"qos": ["strict"], "default_qos": "strict"}, "-n 2", "QOSMaxCpuPerUserLimit"),
    ],
    ids=["too many jobs", "account of another user", "QOS without permission", "limit of a QOS"],
)
def test_refused_submission_shows_the_message_of_slurm(
    accounts: Accounts, limits: Values, command: str, message: str
) -> None:
    strict = {"name": "strict", "flags": ["DenyOnLimit"], "max_tres_per_user": {"cpu": 1}}
    mine = {"name": "lab", "users": [{"name": "researcher", **limits}]}
    other = {"name": "other", "users": [{"name": "student"}]}
    accounts.to(accounts=[mine, other], qos=[strict, {"name": "high"}])

    assert message in accounts.refused(f"sbatch {command} {LONG}")


def test_user_with_less_usage_has_higher_priority(accounts: Accounts) -> None:
    each = [
        {"name": "busy", "fairshare": 1, "users": [{"name": "researcher"}]},
        {"name": "quiet", "fairshare": 1, "users": [{"name": "student"}]},
    ]
    accounts.to(accounts=each)
    accounts.cluster.user("srun --exclusive --mem=100 sleep 5")
    blocker = accounts.submit("--exclusive --mem=100")
    eventually("the job runs", lambda: accounts.state(blocker) == "RUNNING")

    first = accounts.submit("--exclusive --mem=100", "researcher")
    second = accounts.submit("--exclusive --mem=100", "student")
    accounts.cluster.slurmctld.run("scontrol reconfigure")

    def order() -> list[str]:
        output = accounts.cluster.slurmctld.run("squeue --noheader -t PD --sort=-p -o %A")
        return output.split()

    eventually("the second job is first in the queue", lambda: order() == [second, first])
    shares = accounts.cluster.slurmctld.run("sshare -n -P -a -o account,user,rawusage,fairshare")
    used = dict(re.findall(r"^\s*(\w+)\|\w+\|(\d+)\|", shares, re.M))
    assert int(used["busy"]) > int(used["quiet"]) == 0
    accounts.cluster.user(f"scancel {blocker}")
    eventually("the second job runs first", lambda: accounts.state(second) == "RUNNING")
    assert accounts.state(first) == "PENDING"


def test_partition_can_use_a_configured_qos(accounts: Accounts) -> None:
    """slurmctld does not start if a partition names an unknown QOS."""
    accounts.cluster.slurmctld.run(
        "sed -i 's/^PartitionName=.*/& QOS=gate/' /etc/slurm/slurm.conf", "root"
    )
    try:
        accounts.cluster.slurmctld.run("/usr/lib/slurmstack/make-qos && scontrol reconfigure")
        gate = {"name": "gate", "max_tres_per_user": {"cpu": 1}}

        assert accounts.to(qos=[gate]) == ["~ qos gate"]
        job = accounts.submit("-n 2")
        eventually(
            "the QOS limit applies", lambda: accounts.state(job, "%r") == "QOSMaxCpuPerUserLimit"
        )
        accounts.cluster.user(f"scancel {job}")
    finally:
        accounts.cluster.slurmctld.run("sed -i 's/ QOS=gate//' /etc/slurm/slurm.conf", "root")
        accounts.cluster.slurmctld.run("scontrol reconfigure")


# --- Updates of slurmctld ------------------------------------------------------------------------


def test_slurmctld_receives_changes_after_a_restart_of_slurmdbd(
    accounts: Accounts,
) -> None:
    accounts.cluster.dbd.stop()
    accounts.cluster.dbd.start()

    accounts.to(accounts=[LAB])

    assert accounts.state(accounts.submit(""), "%a") == "lab"

"""Accounts as the settings say, by what their Job runs, against a slurmdbd and jobs."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

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
            # Use counts as soon as slurmctld reads its configuration again.
            "extra": {"slurm.conf": ["PriorityCalcPeriod=1"]},
        }

    return edit


@dataclass(frozen=True)
class Accounts:
    """A cluster, and the container from which its accounts are set."""

    cluster: Cluster
    agents: Slurmctld

    def apply(self, *options: str, **accounting: Any) -> tuple[int, str]:
        """Exit code and output of what a deploy of these settings runs."""
        text = wanted_accounts(settings(config(**accounting)))
        put(self.agents.container, {WANTED: text})
        program = ["python3", "-m", "agents.accounts", f"--wanted={WANTED}", *options]
        command = ["timeout", "120", *program]  # the program itself waits for Slurm without a limit
        code, output = open_shells.run(self.agents.container, command, "slurm")
        return code, output.strip()

    def to(self, **accounting: Any) -> list[str]:
        """The plan's lines; what it led to is as the settings say."""
        code, output = self.apply(**accounting)
        *lines, last = output.splitlines()
        assert (code, last) == (0, "accounts match the settings"), output
        return [line.partition(":")[0] for line in lines]

    def settle(self) -> None:
        """Wait until slurmctld has carried out every `scontrol reconfigure`.

        The command returns earlier. Until then slurmctld exits if slurmdbd or the QOS of a
        partition is missing, and nothing restarts it here.
        """

        def is_settled() -> bool:
            log = self.cluster.slurmctld.log()
            told = log.count("Processing Reconfiguration Request")
            return log.count("Running as primary controller") > told

        eventually("slurmctld has read its configuration", is_settled)

    def admin(self, *words: str) -> str:
        """What a person tells sacctmgr."""
        told = " ".join(f"'{word}'" for word in words)
        return self.cluster.slurmctld.run(f"sacctmgr --immediate --parsable2 --noheader {told}")

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
        """What a user is told whose command fails."""
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
    """Nothing but what everybody begins with, and no job."""
    prepared.to()
    prepared.settle()
    yield prepared
    prepared.cluster.slurmctld.run("squeue --noheader --all --format=%A | xargs -r scancel")
    eventually(
        "no job is left", lambda: not prepared.cluster.slurmctld.run("squeue --noheader --all")
    )
    resume(prepared.cluster.slurmctld, NODE)


LAB: Values = {"name": "lab", "users": [{"name": "researcher"}]}


def test_every_configured_user_can_submit(accounts: Accounts) -> None:
    for user in USERS:
        assert accounts.state(accounts.submit("", user), "%a") == "users"


def test_nothing_is_done_twice(accounts: Accounts) -> None:
    assert accounts.to(accounts=[LAB])
    assert accounts.to(accounts=[LAB]) == []


def test_a_dry_run_shows_the_plan_and_changes_nothing(accounts: Accounts) -> None:
    code, told = accounts.apply("--dry-run", accounts=[LAB])

    assert code == 4
    assert "+ account lab" in told.splitlines()
    assert "lab" not in accounts.names("account")


def test_the_plan_is_there_for_machines(accounts: Accounts) -> None:
    _, told = accounts.apply("--dry-run", "--json", accounts=[LAB])

    assert {"action": "add", "kind": "account", "name": "lab"}.items() <= json.loads(told)[
        "actions"
    ][0].items()


def test_accounts_users_and_qos_come_change_and_go(accounts: Accounts) -> None:
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


def test_every_limit_is_set_and_cleared(accounts: Accounts) -> None:
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

    accounts.to(accounts=[{**lab, "users": [user]}], qos=[every])
    bare = {"accounts": [{"name": "lab", "users": [{"name": "student"}]}], "qos": [{"name": "all"}]}

    assert accounts.to(**bare) == ["~ qos all", "~ account lab", "~ user student account lab"]
    assert accounts.to(**bare) == []
    assert accounts.shown("lab", "student", "grptres,maxwall,maxjobs,fairshare,qos") == "|||1|"


def test_ranks_and_default_accounts_are_given_and_taken_back(accounts: Accounts) -> None:
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


def test_what_a_person_made_stays(accounts: Accounts) -> None:
    accounts.to(accounts=[LAB])
    accounts.admin("add", "account", "theirs", "fairshare=3")
    accounts.admin("add", "user", "student", "account=theirs", "maxjobs=2")
    accounts.admin("modify", "user", "researcher", "where", "account=lab", "set", "maxjobs=5")

    assert accounts.to(accounts=[LAB]) == []
    assert accounts.shown("theirs", "student", "maxjobs") == "2"
    assert accounts.shown("lab", "researcher", "maxjobs") == "5"
    accounts.admin("modify", "user", "student", "set", "defaultaccount=users")
    accounts.admin("delete", "account", "theirs")


def test_what_a_person_changed_or_deleted_of_the_settings_is_mended(accounts: Accounts) -> None:
    lab = {"name": "lab", "users": [{"name": "student", "max_jobs": 2}, {"name": "researcher"}]}
    accounts.to(accounts=[lab])
    accounts.admin("modify", "user", "student", "where", "account=lab", "set", "maxjobs=9")
    accounts.admin("delete", "user", "researcher", "where", "account=lab")

    assert accounts.to(accounts=[lab]) == [
        "+ user researcher account lab",
        "~ user student account lab",
    ]
    assert accounts.shown("lab", "student", "maxjobs") == "2"


def test_what_has_jobs_goes_only_when_told_twice(accounts: Accounts) -> None:
    accounts.to(accounts=[LAB])
    running, waiting = accounts.submit("-A lab"), accounts.submit("-A lab --hold")
    eventually("it runs", lambda: accounts.state(running) == "RUNNING")

    code, told = accounts.apply()

    assert code == 3
    assert "account lab: cannot be removed: 2 jobs use it" in told
    assert "add 'account lab' to accounting.remove_with_jobs" in told
    assert "lab" in accounts.names("account")
    assert (accounts.state(running), accounts.state(waiting)) == ("RUNNING", "PENDING")

    accounts.to(remove_with_jobs=["account lab"])
    assert "lab" not in accounts.names("account")
    assert not accounts.cluster.slurmctld.run("squeue --noheader --all")


def test_an_edit_leaves_running_jobs_alone(accounts: Accounts) -> None:
    accounts.to(accounts=[LAB])
    job = accounts.submit("-A lab")
    eventually("it runs", lambda: accounts.state(job) == "RUNNING")
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
    eventually("it waits", lambda: accounts.state(second, "%r") == "AssocMaxJobsLimit")


@pytest.mark.parametrize(
    ("given", "command", "said"),
    [
        ({"max_submit_jobs": 0}, "", "AssocMaxSubmitJobLimit"),
        ({}, "-A other", "Invalid account or account/partition combination specified"),
        ({}, "--qos=high", "Invalid qos specification"),
        ({"qos": ["strict"], "default_qos": "strict"}, "-n 2", "QOSMaxCpuPerUserLimit"),
    ],
    ids=["too many jobs", "another's account", "a QOS not given", "too much for the QOS"],
)
def test_limits_refuse_with_slurms_own_message(
    accounts: Accounts, given: Values, command: str, said: str
) -> None:
    strict = {"name": "strict", "flags": ["DenyOnLimit"], "max_tres_per_user": {"cpu": 1}}
    mine = {"name": "lab", "users": [{"name": "researcher", **given}]}
    other = {"name": "other", "users": [{"name": "student"}]}
    accounts.to(accounts=[mine, other], qos=[strict, {"name": "high"}])

    assert said in accounts.refused(f"sbatch {command} {LONG}")


def test_who_used_little_is_ahead_in_the_queue(accounts: Accounts) -> None:
    each = [
        {"name": "busy", "fairshare": 1, "users": [{"name": "researcher"}]},
        {"name": "quiet", "fairshare": 1, "users": [{"name": "student"}]},
    ]
    accounts.to(accounts=each)
    accounts.cluster.user("srun --exclusive --mem=100 sleep 5")
    blocker = accounts.submit("--exclusive --mem=100")
    eventually("it runs", lambda: accounts.state(blocker) == "RUNNING")

    first = accounts.submit("--exclusive --mem=100", "researcher")
    second = accounts.submit("--exclusive --mem=100", "student")
    accounts.cluster.slurmctld.run("scontrol reconfigure")

    def order() -> list[str]:
        told = accounts.cluster.slurmctld.run("squeue --noheader -t PD --sort=-p -o %A")
        return told.split()

    eventually("its priority is higher", lambda: order() == [second, first])
    shares = accounts.cluster.slurmctld.run("sshare -n -P -a -o account,user,rawusage,fairshare")
    used = dict(re.findall(r"^\s*(\w+)\|\w+\|(\d+)\|", shares, re.M))
    assert int(used["busy"]) > int(used["quiet"]) == 0
    accounts.cluster.user(f"scancel {blocker}")
    eventually("it is the first to run", lambda: accounts.state(second) == "RUNNING")
    assert accounts.state(first) == "PENDING"


def test_a_partition_finds_the_qos_that_it_names(accounts: Accounts) -> None:
    """On a partition of an unknown QOS slurmctld does not start."""
    accounts.cluster.slurmctld.run(
        "sed -i 's/^PartitionName=.*/& QOS=gate/' /etc/slurm/slurm.conf", "root"
    )
    try:
        accounts.cluster.slurmctld.run("/usr/lib/slurmstack/make-qos && scontrol reconfigure")
        gate = {"name": "gate", "max_tres_per_user": {"cpu": 1}}

        assert accounts.to(qos=[gate]) == ["~ qos gate"]
        job = accounts.submit("-n 2")
        eventually("it holds", lambda: accounts.state(job, "%r") == "QOSMaxCpuPerUserLimit")
        accounts.cluster.user(f"scancel {job}")
    finally:
        accounts.cluster.slurmctld.run("sed -i 's/ QOS=gate//' /etc/slurm/slurm.conf", "root")
        accounts.cluster.slurmctld.run("scontrol reconfigure")


# --- What slurmctld hears ------------------------------------------------------------------------


def test_slurmctld_learns_of_changes_although_slurmdbd_has_just_started_again(
    accounts: Accounts,
) -> None:
    accounts.cluster.dbd.stop()
    accounts.cluster.dbd.start()

    accounts.to(accounts=[LAB])

    assert accounts.state(accounts.submit(""), "%a") == "lab"

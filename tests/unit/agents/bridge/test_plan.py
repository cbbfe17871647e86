"""What the bridge does in each situation. The histories in test_histories.py combine them."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from agents import labels
from agents.bridge.actions import (
    Action,
    Bind,
    Cancel,
    Drain,
    Evict,
    Exclude,
    Finish,
    Link,
    Place,
    Refuse,
    Release,
    Submit,
    Tell,
    Undrain,
    Unlink,
)
from agents.bridge.fit import Machine
from agents.bridge.identity import Identity
from agents.bridge.observed import Job, Observed, Pod, Request, Share
from agents.bridge.plan import GATHER, MISFIT, REFUSAL, Memory, plan
from agents.bridge.podspec import Requirement, Term
from agents.bridge.volumes import Needs
from agents.bridge.wishes import Wishes
from agents.drains import PODS
from tests.unit.agents.bridge.things import spec

NOW = 1000.0
ALICE = Identity("alice", 1001, 1001, None)
RUNS = frozenset({"RUNNING"})


def pod(name: str = "a", cpus: int = 1, **more: Any) -> Pod:
    size = {"cpu": Decimal(cpus)}
    request = Request("lab/a", ALICE, Wishes(), spec(more.pop("spec", None)), size)
    content = {"gang": "g", "gang_size": 1, "request": request, **more}
    return Pod("lab", name, f"uid-{name}", "1", NOW, **content)


def linked(name: str = "a", **more: Any) -> Pod:
    return pod(name, job=7, finalizers=(labels.BRIDGE,), **more)


def job(*state: str, pods: int = 1, **more: Any) -> Job:
    shares = more.pop("shares", {"n-0": Share(4, 0)} if "RUNNING" in state else {})
    return Job(7, "g", pods, frozenset(state), started=NOW, shares=shares, **more)


def machine(name: str = "m-0", cpus: int = 4, **more: Any) -> Machine:
    amounts = {"cpu": Decimal(cpus)}
    content = {"labels": {}, "taints": (), "is_cordoned": False, "free": amounts, "room": amounts}
    return Machine(name, **{**content, **more})


def planned(
    *pods: Pod, jobs: tuple[Job, ...] = (), now: float = NOW, **machines: Machine
) -> tuple[Action, ...]:
    known = {name.replace("_", "-"): one for name, one in machines.items()} or {"n-0": machine()}
    homes = {name: one.name for name, one in known.items()}
    return plan(Observed(pods, {one.id: one for one in jobs}, known, homes), now).actions


# --- Before the job runs -------------------------------------------------------------------------


def test_new_pod_gets_a_job_without_the_nodes_that_kubernetes_forbids() -> None:
    selective = pod(spec={"nodeSelector": {"pool": "gpu"}})
    good = machine("m-1", labels={"pool": "gpu"})

    (submit,) = planned(selective, n_0=machine(), n_1=good)

    assert isinstance(submit, Submit)
    assert submit.excluded == {"n-0"}


def test_room_that_only_pods_of_the_bridge_use_does_not_exclude_a_node() -> None:
    """Slurm itself counts these pods. Without the node, Slurm could not plan for its release."""
    full = machine(free={"cpu": Decimal(0)})

    (submit,) = planned(pod(), n_0=full)

    assert isinstance(submit, Submit)
    assert submit.excluded == frozenset()


def test_gang_waits_until_all_its_pods_exist() -> None:
    one, other = pod("a", gang_size=2), pod("b", cpus=3, gang_size=2)

    (tell,) = planned(one)
    (submit,) = planned(one, other)

    assert isinstance(tell, Tell)
    assert "1 of 2 pods" in tell.text
    assert isinstance(submit, Submit)
    assert submit.request.size["cpu"] == 3, "the job has room for the largest pod in each place"


def test_pods_that_want_different_machines_are_judged_one_by_one() -> None:
    """Pods that want the same are judged once for all of them."""
    selective = pod("b", gang="h", spec={"nodeSelector": {"pool": "gpu"}})
    large = pod("c", gang="i", cpus=3)
    other = machine("m-1", cpus=2, labels={"pool": "gpu"})

    submits = planned(pod(), pod("d", gang="j"), selective, large, n_0=machine(), n_1=other)

    excluded = {one.gang: set(one.excluded) for one in submits if isinstance(one, Submit)}
    assert excluded == {"g": set(), "j": set(), "h": {"n-0"}, "i": {"n-1"}}


def test_pod_with_a_scheduling_gate_waits() -> None:
    assert planned(pod(is_held_back=True)) == ()


def test_pod_that_can_never_run_is_told_why_once() -> None:
    wrong = pod(request=None, problem="no rule")

    assert planned(wrong) == (Refuse(wrong, "no rule"),)
    assert planned(replace(wrong, said="no rule")) == ()


def test_pods_are_linked_before_anything_else_happens() -> None:
    waiting = pod()

    assert planned(waiting, jobs=(job("RUNNING"),)) == (Link(waiting, 7),)


def test_pending_job_follows_the_machines_and_its_pods_say_why_they_wait() -> None:
    waiting = linked()

    actions = planned(
        waiting,
        jobs=(job("PENDING", reason="Priority"),),
        n_0=machine(cpus=0),
        n_1=machine("m-1"),
    )

    assert actions == (
        Exclude(7, frozenset({"n-0"})),
        Tell(waiting, "job 7 waits in Slurm: Priority"),
    )


def test_job_without_pods_is_cancelled() -> None:
    for state in ("PENDING", "RUNNING"):
        (cancel,) = planned(jobs=(job(state),))
        assert isinstance(cancel, Cancel)


def test_pod_keeps_its_job_while_the_prolog_runs() -> None:
    """Slurm has allocated the nodes, so the pod can start."""
    (bind,) = planned(linked(), jobs=(job("CONFIGURING", "RUNNING"),))

    assert isinstance(bind, Bind)


# --- When the job runs ---------------------------------------------------------------------------


def test_all_pods_of_a_gang_are_bound_together() -> None:
    one, other = linked("a", cpus=2), linked("b", cpus=2)
    shares = {"n-0": Share(2, 0), "n-1": Share(2, 0)}

    (bind,) = planned(
        one,
        other,
        jobs=(job("RUNNING", pods=2, shares=shares),),
        n_0=machine("m-0"),
        n_1=machine("m-1"),
    )

    assert bind == Bind(7, ((one, "m-0"), (other, "m-1")))


def test_gang_with_a_missing_pod_gives_its_job_back_after_a_time() -> None:
    lonely = linked("a", gang_size=2)
    running = job("RUNNING", pods=2)

    (tell,) = planned(lonely, jobs=(running,))
    actions = planned(lonely, jobs=(running,), now=NOW + GATHER)

    assert isinstance(tell, Tell)
    assert [type(action) for action in actions] == [Unlink, Cancel, Tell]


NOWHERE = (
    "no machine can run the pod: the machine does not have the label 'pool=gpu' of nodeSelector "
    "(2 of 3); too little 'cpu' is free in Kubernetes: 0 of 1 (1 of 3)"
)


@pytest.mark.parametrize("state", [None, "PENDING"])
def test_pod_that_no_machine_can_run_says_why_and_keeps_its_place(state: str | None) -> None:
    spec = {"nodeSelector": {"pool": "gpu"}}
    one = linked(spec=spec) if state else pod(spec=spec)
    jobs = (job(state),) if state else ()

    actions = planned(
        one,
        jobs=jobs,
        n_0=machine(),
        n_1=machine("m-1"),
        n_2=machine("m-2", cpus=0, labels={"pool": "gpu"}),
    )

    assert actions == (Tell(one, NOWHERE),)


def test_gang_is_bound_only_if_all_its_pods_fit_together() -> None:
    one, other = linked("a", cpus=3), linked("b", cpus=3)
    running = job("RUNNING", pods=2, shares={"n-0": Share(6, 0)})

    actions = planned(one, other, jobs=(running,), n_0=machine(cpus=4))

    assert not [action for action in actions if isinstance(action, Bind)]


def test_node_without_room_in_kubernetes_is_excluded_from_the_next_job_for_a_time() -> None:
    full = {"n-0": machine(free={"cpu": Decimal(0)}), "n-1": machine("m-1")}
    made = plan(Observed((linked(),), {7: job("RUNNING")}, full), NOW)

    # The pod is unlinked first: with a job that was cancelled, it would be deleted.
    assert [type(action) for action in made.actions] == [Unlink, Cancel, Tell]

    def excluded(now: float, memory: Memory) -> frozenset[str]:
        (submit,) = plan(Observed((pod(),), {}, full), now, memory).actions
        assert isinstance(submit, Submit)
        return submit.excluded

    assert excluded(NOW + 1, made.memory) == {"n-0"}
    assert excluded(NOW + MISFIT + 1, made.memory) == frozenset()


def test_pod_that_is_larger_than_its_job_is_not_bound() -> None:
    """The owner of a pending job can make the job smaller."""
    actions = planned(linked(cpus=4), jobs=(job("RUNNING", shares={"n-0": Share(1, 0)}),))

    assert not any(isinstance(action, Bind) for action in actions)


def test_two_gangs_do_not_take_the_same_room() -> None:
    room = machine(cpus=4)
    first, second = linked("a", cpus=3), pod("b", cpus=3, gang="h", job=8)
    other = replace(job("RUNNING"), id=8, gang="h")

    actions = planned(first, second, jobs=(job("RUNNING"), other), n_0=room)

    assert [action.job for action in actions if isinstance(action, Bind)] == [7]


def test_replacement_of_a_pod_takes_its_place_in_the_job() -> None:
    ended = linked("a", machine="m-0", has_stopped=True, gang_size=2)
    other = linked("b", machine="m-0", cpus=2, gang_size=2)
    new = pod("c", cpus=2, gang_size=2)
    running = job("RUNNING", pods=2, shares={"n-0": Share(4, 0)})

    assert Link(new, 7) in planned(ended, other, new, jobs=(running,))
    joined = replace(new, job=7)
    assert Bind(7, ((joined, "m-0"),)) in planned(ended, other, joined, jobs=(running,))


def test_running_gang_goes_on_if_kubernetes_has_no_room_for_a_replacement() -> None:
    other = linked("b", machine="m-0", gang_size=2)
    new = linked("c", cpus=2, gang_size=2)
    full = machine(free={"cpu": Decimal(1)})

    (tell,) = planned(other, new, jobs=(job("RUNNING", pods=2),), n_0=full)

    assert isinstance(tell, Tell)
    assert "too little 'cpu' is free in Kubernetes" in tell.text


# --- The end -------------------------------------------------------------------------------------


def test_job_ends_when_the_last_pod_has_stopped() -> None:
    stopped = linked("a", machine="m-0", has_stopped=True, has_succeeded=True)
    first = replace(stopped, finalizers=())
    last = replace(first, name="b", uid="uid-b")
    running = job("RUNNING", pods=2)

    still = replace(last, has_stopped=False, stops_by=0.0)
    assert not any(isinstance(one, Finish) for one in planned(first, still, jobs=(running,)))
    assert planned(first, last, jobs=(running,)) == (Finish(7, success=True),)
    failed = replace(last, has_succeeded=False)
    assert planned(first, failed, jobs=(running,)) == (Finish(7, success=False),)


def test_pod_that_has_stopped_is_released() -> None:
    done = linked(machine="m-0", has_stopped=True)

    assert Release(done) in planned(done, jobs=(job("COMPLETED"),))


def test_bound_pod_is_deleted_when_its_job_ends() -> None:
    bound = linked(machine="m-0")
    for state in ("CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "SUSPENDED"):
        (evict,) = planned(bound, jobs=(job(state, "COMPLETING"),))
        assert isinstance(evict, Evict), state
        assert state in evict.why

    leaving = replace(bound, stops_by=0.0)
    assert planned(leaving, jobs=(job("CANCELLED", "COMPLETING"),)) == ()


def test_unbound_pod_is_deleted_only_if_its_job_was_cancelled() -> None:
    waiting = linked()

    assert isinstance(planned(waiting, jobs=(job("CANCELLED"),))[0], Evict)
    assert planned(waiting, jobs=(job("NODE_FAIL"),)) == (Unlink(waiting),)
    assert planned(waiting) == (Unlink(waiting),)


def test_pod_on_a_node_that_the_job_has_lost_is_deleted() -> None:
    """The owner of a job can reduce its nodes."""
    kept, lost = linked("a", machine="m-0"), linked("b", machine="m-1")
    running = job("RUNNING", pods=2)

    (evict,) = planned(kept, lost, jobs=(running,), n_0=machine("m-0"), n_1=machine("m-1"))

    assert isinstance(evict, Evict)
    assert evict.pod == lost


def test_volumes_are_created_before_the_pod_is_bound() -> None:
    waiting = linked()
    assert waiting.request
    request = replace(waiting.request, volumes=Needs(waiting={"data": ""}))
    waiting = replace(waiting, request=request)

    place, tell = planned(waiting, jobs=(job("RUNNING"),))
    assert place == Place(waiting, "data", "m-0")
    assert isinstance(tell, Tell)

    chosen = replace(request, volumes=Needs(waiting={"data": "m-0"}))
    (tell,) = planned(replace(waiting, request=chosen), jobs=(job("RUNNING"),))
    assert isinstance(tell, Tell)


def test_pod_runs_only_where_its_volumes_can_be_mounted() -> None:
    there = spec_of_terms("m-1")
    waiting = pod()
    assert waiting.request
    request = replace(waiting.request, volumes=Needs(terms=(there,)))
    (submit,) = planned(replace(waiting, request=request), n_0=machine("m-0"), n_1=machine("m-1"))
    assert isinstance(submit, Submit)
    assert submit.excluded == {"n-0"}


def spec_of_terms(name: str) -> tuple[Term, ...]:
    requirement = Requirement("metadata.name", "In", [name])
    return (Term(match_fields=[requirement]),)


def test_pod_stays_in_its_job_if_its_gang_can_no_longer_be_determined() -> None:
    """For example, a user has deleted the JobSet, but kept its pods."""
    lost = linked(machine="m-0", gang="another", request=None, problem="JobSet 'x': does not exist")
    assert planned(lost, jobs=(job("RUNNING"),)) == ()


def test_bound_pod_without_a_rule_is_deleted_when_its_job_ends() -> None:
    lost = linked(machine="m-0", request=None, problem="no rule")
    (evict,) = planned(lost, jobs=(job("TIMEOUT", "COMPLETING"),))
    assert isinstance(evict, Evict)


def test_running_pod_leaves_if_its_job_waits_again() -> None:
    """Its node was lost, and its user has allowed Slurm to requeue the job."""
    running, other = linked(machine="m-0"), linked("b")
    evict, unlink, cancel = planned(running, other, jobs=(job("PENDING", pods=2),), n_0=machine())[
        :3
    ]
    assert (type(evict), type(unlink), type(cancel)) == (Evict, Unlink, Cancel)


def test_gang_asks_slurm_again_some_time_after_a_refusal() -> None:
    memory = Memory().refused(["g"], NOW)
    observed = Observed((pod(),), {}, {"n-0": machine()})
    made = plan(observed, NOW + 1, memory)
    assert made.actions == ()
    (submit,) = plan(observed, NOW + REFUSAL + 1, made.memory).actions
    assert isinstance(submit, Submit)


# --- Nodes ---------------------------------------------------------------------------------------


def of_nodes(*pods: Pod, **observed: Any) -> list[Action]:
    """Return the actions that concern nodes."""
    made = plan(Observed(pods, **{"machines": {"n-0": machine()}, **observed}), NOW)
    return [action for action in made.actions if isinstance(action, Drain | Undrain)]


RUNS_THERE: dict[str, Any] = {"machine": "m-0", "stops_by": 0.0}


@pytest.mark.parametrize(
    ("known", "lost", "drains"),
    [
        # The epilog keeps the resources until the pods have stopped.
        (job("CANCELLED", "COMPLETING"), False, False),
        (job("RUNNING"), False, False),
        (job("NODE_FAIL", "COMPLETING"), True, True),
        (job("NODE_FAIL"), False, True),
        # The user has allowed Slurm to requeue the job.
        (job("PENDING"), False, True),
        (None, False, True),
    ],
)
def test_node_whose_pods_outlive_their_job_is_drained(
    known: Job | None, lost: bool, drains: bool
) -> None:
    found = of_nodes(
        linked(**RUNS_THERE),
        jobs={7: known} if known else {},
        lost=frozenset({"n-0"}) if lost else frozenset(),
    )
    assert bool(found) is drains
    if drains:
        assert found == [Drain("n-0", f"{PODS}lab/a of job 7 still runs")]


def test_drain_stays_until_the_pods_have_stopped() -> None:
    reasons = {"n-0": f"{PODS}lab/a of job 7 still runs"}
    jobs = {7: job("NODE_FAIL", "COMPLETING")}
    assert of_nodes(linked(**RUNS_THERE), jobs=jobs, reasons=reasons) == []
    assert of_nodes(linked(has_stopped=True, machine="m-0"), jobs=jobs, reasons=reasons) == [
        Undrain("n-0")
    ]


@pytest.mark.parametrize("reason", ["maintenance", "slurmstack:check:disk: full"])
def test_drains_of_others_stay(reason: str) -> None:
    assert of_nodes(jobs={}, reasons={"n-0": reason}) == []
    assert of_nodes(linked(**RUNS_THERE), jobs={}, reasons={"n-0": reason}) == []


def test_pods_leave_before_a_node_starts_again() -> None:
    observed = Observed(
        (linked("a", machine="m-0"), linked("b", machine="m-1"), linked("c", **RUNS_THERE)),
        {7: job("RUNNING", pods=3)},
        {"n-0": machine("m-0"), "n-1": machine("m-1")},
        starting=frozenset({"m-0"}),
    )
    evicted = [one.pod.name for one in plan(observed, NOW).actions if isinstance(one, Evict)]
    assert "a" in evicted
    assert "c" not in evicted


def test_gang_without_room_says_so_and_waits() -> None:
    """Otherwise, the bridge would submit and cancel jobs all the time."""
    large, small = linked(cpus=3), job("RUNNING", shares={"n-0": Share(1, 0)})
    known = {"n-0": machine()}
    first = plan(Observed((large,), {7: small}, known, {"n-0": "m-0"}), NOW)
    assert any(isinstance(one, Cancel) for one in first.actions)
    (tell,) = [one for one in first.actions if isinstance(one, Tell)]
    assert "its nodes have no room for its pods" in tell.text

    unlinked = replace(large, job=None)
    observed = Observed((unlinked,), {}, known, {"n-0": "m-0"})
    assert plan(observed, NOW + 1, first.memory).actions == ()
    (submit,) = plan(observed, NOW + REFUSAL + 1, first.memory).actions
    assert isinstance(submit, Submit)


def test_next_job_avoids_a_node_whose_machine_is_gone() -> None:
    """Slurm notices only after a while that the node does not respond."""
    homes = {"n-0": "m-0", "n-1": "m-1"}
    known = {"n-1": machine("m-1")}
    first = plan(Observed((linked(),), {7: job("RUNNING")}, known, homes), NOW)
    (submit,) = plan(Observed((pod(),), {}, known, homes), NOW + 1, first.memory).actions
    assert isinstance(submit, Submit)
    assert submit.excluded == {"n-0"}


def test_job_ends_only_when_slurmctld_knows_the_new_address_of_its_node() -> None:
    """slurmctld would send the end to the former address, and repeat it only after minutes."""
    stopped = linked(machine="m-0", has_stopped=True)

    def ends(starting: str, restarted: str) -> bool:
        observed = Observed(
            (stopped,),
            {7: job("RUNNING")},
            {},
            {"n-0": "m-0"},
            starting=frozenset({starting}),
            restarted=frozenset({restarted}),
        )
        return any(isinstance(one, Finish) for one in plan(observed, NOW).actions)

    assert not ends("m-1", "m-0")
    # The pods have just stopped, and the node does not know it yet.
    assert not ends("m-0", "m-1")
    assert ends("m-1", "m-1")


def test_pods_stay_if_their_nodes_run_no_further_pods() -> None:
    """For example, an edit of the settings has removed `shared_with_pods`."""
    running, jobs = linked(machine="m-0"), {7: job("RUNNING")}
    assert plan(Observed((running,), jobs, {}, {"n-0": "m-0"}), NOW).actions == ()
    # The machine of the node may be unknown for a moment.
    assert plan(Observed((running,), jobs, {}, {}), NOW).actions == ()


def test_job_waits_for_a_pod_that_cannot_be_bound_at_the_moment() -> None:
    """For example, Kubernetes has created the volume, but the bridge does not know it yet."""
    unusable = linked(request=None, problem="its volume 'v' does not exist")
    (tell,) = planned(unusable, jobs=(job("RUNNING"),))
    assert tell == Tell(unusable, "its volume 'v' does not exist")

    given_back = planned(unusable, jobs=(job("RUNNING"),), now=NOW + GATHER)
    assert [type(one) for one in given_back] == [Unlink, Cancel, Tell]

"""Faults in agents/: what runs in the cluster, and drains, mends, counts and deletes."""

from typing import Final

from tests.mutants.fault import Fault

_UNIT: Final = "tests/unit/agents"

FAULTS: Final = (
    Fault(
        "the reconciler drains one node more than its share",
        "agents",
        "agents/reconciler/plan.py",
        "room = Room(max(1, int(wanted.share * len(nodes))), taken)",
        "room = Room(1 + int(wanted.share * len(nodes)), taken)",
        f"{_UNIT}/reconciler/test_plan.py"
        "::test_no_more_than_the_share_is_drained_and_the_others_are_told",
    ),
    Fault(
        "root follows a link of a user's",
        "agents",
        "agents/tree.py",
        "_IN_ROOT | (0 if links else _NO_SYMLINKS)",
        "_IN_ROOT",
        f"{_UNIT}/test_tree.py::test_what_a_link_leads_to_is_not_there[inside]",
    ),
    Fault(
        "a link that is allowed leads out of the jail",
        "agents",
        "agents/tree.py",
        "_IN_ROOT | (0 if links else _NO_SYMLINKS)",
        "0 if links else _NO_SYMLINKS",
        f"{_UNIT}/test_tree.py::test_links_that_are_allowed_stay_in_the_tree",
    ),
    Fault(
        "a home is given away that another has put there",
        "agents",
        "agents/homes.py",
        "if made.st_uid != os.geteuid() or made.st_mode & 0o077:",
        "if made.st_uid != os.geteuid():",
        f"{_UNIT}/test_homes.py::test_another_folder_in_the_place_of_a_new_home_is_given_to_nobody",
    ),
    Fault(
        "the name of a user's process drains a node",
        "agents",
        "agents/checks/kernel.py",
        "if not _OF_A_PROCESS.match(message))",
        "if message)",
        f"{_UNIT}/checks/test_kernel.py"
        "::test_what_users_can_write_into_the_log_is_no_message_of_a_driver",
    ),
    Fault(
        "a process that SIGKILL would end drains a node",
        "agents",
        "agents/checks/readers.py",
        'return status["Uid"].split()[0] == "0" or bool(',
        "return bool(1 | ",
        f"{_UNIT}/checks/test_readers.py::test_what_sigkill_would_end_does_not_hang",
    ),
    Fault(
        "a drain is lifted by checks that ran before it",
        "agents",
        "agents/reconciler/judge.py",
        "        return self._is_fresh and passed\n",
        "        return passed\n",
        f"{_UNIT}/reconciler/test_judge.py"
        "::test_without_a_check_that_has_passed_since_no_drain_is_lifted",
    ),
    Fault(
        "the reconciler overwrites the drain of a person",
        "agents",
        "agents/reconciler/carry.py",
        "        if record.reason or record.state & DRAINED:\n",
        "        if is_own(record.reason):\n",
        f"{_UNIT}/reconciler/test_carry.py::test_who_has_drained_it_in_between_keeps_his_reason",
    ),
    Fault(
        "the reconciler lifts a drain that is another by now",
        "agents",
        "agents/reconciler/carry.py",
        "if (record.reason, record.reason_time) != (action.reason, action.since):",
        "if record.reason != action.reason:",
        f"{_UNIT}/reconciler/test_carry.py::test_a_drain_that_is_another_by_now_is_not_lifted",
    ),
    Fault(
        "the record of a node with a job is deleted",
        "agents",
        "agents/reconciler/ghosts.py",
        "        and not node.alloc_cpus\n",
        "",
        f"{_UNIT}/reconciler/test_ghosts.py"
        "::test_only_what_is_gone_and_dynamic_and_free_and_unwanted_is_a_ghost",
    ),
    Fault(
        "a machine reboots under a node that is in service",
        "agents",
        "agents/reconciler/ladder.py",
        "            if other and not other.is_out:\n",
        "            if other and other.is_out:\n",
        f"{_UNIT}/reconciler/test_plan.py::test_no_machine_is_rebooted_that_is_in_use",
    ),
    Fault(
        "a check overwrites the drain of a person",
        "agents",
        "agents/checks/slurm.py",
        "    if not failed or (standing and not standing.startswith(CHECK)):\n",
        "    if not failed:\n",
        f"{_UNIT}/checks/test_slurm.py::test_a_drain_of_anybody_else_is_left",
    ),
    Fault(
        "a check drains although Slurm does not tell who drained before",
        "agents",
        "agents/checks/slurm.py",
        "    if reading.code:\n",
        "    if reading.code < 0:\n",
        f"{_UNIT}/checks/test_command.py"
        "::test_a_slurm_that_does_not_answer_changes_nothing_and_is_told",
    ),
    Fault(
        "a check that cannot run drains its node",
        "agents",
        "agents/checks/passes.py",
        "        return Outcome(check.name, Verdict.UNKNOWN, str(error), chosen.effect)\n",
        "        return Outcome(check.name, Verdict.FAILED, str(error), chosen.effect)\n",
        f"{_UNIT}/checks/test_passes.py::test_what_cannot_be_told_is_neither_good_nor_bad",
    ),
    Fault(
        "what a hanging check has started goes on for good",
        "agents",
        "agents/checks/bounded.py",
        "os.killpg(self.pid, signal.SIGKILL)",
        "os.kill(self.pid, signal.SIGKILL)",
        f"{_UNIT}/checks/test_bounded.py::test_what_hangs_is_killed_with_all_that_it_has_started",
    ),
    Fault(
        "a node goes back into service twice",
        "agents",
        "agents/slurm/client.py",
        'self._update(node, {"state": ["RESUME"]}, repeat=False)',
        'self._update(node, {"state": ["RESUME"]}, repeat=True)',
        f"{_UNIT}/slurm/test_client.py::test_what_may_have_been_done_is_not_done_again",
    ),
    Fault(
        "a long check lifts a drain although a quick check fails",
        "agents",
        "agents/longchecks/plan.py",
        'return "lift" if older and not (evidence and evidence.failed) else "leave"',
        'return "lift" if older else "leave"',
        f"{_UNIT}/longchecks/test_run.py"
        "::test_a_node_on_which_a_quick_check_fails_stays_out_whatever_was_measured",
    ),
    Fault(
        "the exporter counts one task of an array too few",
        "agents",
        "agents/exporter/rows.py",
        "(int(last) - int(first)) // int(step or 1) + 1",
        "(int(last) - int(first)) // int(step or 1)",
        f"{_UNIT}/exporter/test_rows.py::test_tasks_of_an_array_are_counted",
    ),
    Fault(
        "a refresh of the jail follows a link out of it",
        "agents",
        "agents/tree.py",
        "_IN_ROOT | (0 if links else _NO_SYMLINKS)",
        "0",
        f"{_UNIT}/test_populate.py::test_a_link_in_the_jail_leads_nobody_astray",
    ),
    Fault(
        "old snapshots go although none of those kept is ready",
        "agents",
        "agents/snapshots.py",
        "kept = [one.metadata.name for one in before if one.is_ready][-keep:]",
        "kept = [one.metadata.name for one in before][-keep:]",
        f"{_UNIT}/test_snapshots.py::test_so_many_that_are_ready_are_kept",
    ),
    Fault(
        "a resize leaves the record of a node that an operator drained",
        "agents",
        "agents/reconciler/carry.py",
        "                self._slurm.forget(action.node)\n",
        "                self._slurm.node(action.node)\n",
        "tests/cluster/edits/test_resize.py::test_a_drained_node_that_left_leaves_no_ghost",
        "cluster",
    ),
    Fault(
        "a fault of slurmd's takes the jobs of its node along",
        "agents",
        "agents/keep_slurmd.py",
        "            if code >= 0:\n",
        "            if code is not None:\n",
        f"{_UNIT}/test_keep_slurmd.py::test_what_a_signal_ended_starts_again",
    ),
    Fault(
        "slurmd's port is free for a job by IPv6",
        "agents",
        "agents/keep_slurmd.py",
        "    stack.enter_context(beside)\n",
        "    beside.close()\n    return listener\n",
        "tests/container/spank/test_endings.py"
        "::test_a_job_goes_on_where_slurmd_is_ended_by_a_fault_and_cannot_take_its_place",
        "container",
    ),
)

"""Faults in the scripts of images/: most show in containers or on a cluster alone."""

from typing import Final

from tests.mutants.fault import Fault

_CONTAINER: Final = "tests/container"
_CLUSTER: Final = "tests/cluster"

FAULTS: Final = (
    Fault(
        "a pod starts although its packet filter is not set",
        "images",
        "images/guard/guard",
        "set -euo pipefail\n",
        "set -u\n",
        f"{_CONTAINER}/network/test_guard.py::test_without_the_right_to_it_the_pod_does_not_start",
        "container",
    ),
    Fault(
        "users reach by IPv6 what is refused to them",
        "images",
        "images/guard/guard",
        "    ip6 daddr @refused6 jump refuse\n",
        "",
        f"{_CONTAINER}/network/test_guard.py::test_it_is_refused_at_once_to_everybody_but_root",
        "container",
    ),
    Fault(
        "a node that loses its jail goes on taking jobs",
        "images",
        "images/worker/ready",
        '  if found=$(drained) && [ -z "$found" ]; then\n',
        '  if found=$(drained) && [ -n "$found" ]; then\n',
        f"{_CONTAINER}/jail/test_worker.py"
        "::test_a_node_registers_when_it_has_the_jail_and_drains_while_it_has_not",
        "container",
    ),
    Fault(
        "a login node that cannot limit its users lets them in",
        "images",
        "images/login/limits",
        'tell its operator."\n    return 1\n',
        'tell its operator."\n    return 0\n',
        f"{_CONTAINER}/login/test_login.py"
        "::test_a_limit_that_cannot_be_put_in_force_lets_nobody_in",
        "container",
    ),
    Fault(
        "sessions on a login node may mount",
        "images",
        "images/login/sshd",
        "  setpriv --bounding-set -sys_admin --inh-caps -sys_admin $slurmstack/serve",
        "  $slurmstack/serve",
        f"{_CONTAINER}/login/test_login.py::test_no_session_may_mount",
        "container",
    ),
    Fault(
        "a dump is loaded over a database that is in use",
        "images",
        "images/backup/restore",
        'if [ "$marks" = 0 ] && [ "$tables" != 0 ]; then\n',
        'if [ "$marks" != 0 ] && [ "$tables" = 0 ]; then\n',
        f"{_CONTAINER}/accounting/test_backup.py::test_nothing_is_loaded_over_what_is_there",
        "container",
    ),
    Fault(
        "slurmdbd starts on a database that is loaded in part",
        "images",
        "images/accounting/slurmdbd",
        'if [ "$half" != 0 ]; then\n',
        'if [ "$half" = 2 ]; then\n',
        f"{_CONTAINER}/accounting/test_backup.py"
        "::test_a_load_that_is_cut_short_keeps_slurmdbd_out_and_is_begun_anew",
        "container",
    ),
    Fault(
        "Prometheus goes by an edit only after a restart",
        "images",
        "images/monitoring/serve",
        '  ! changed "$folder" || kill -HUP $daemon\n',
        '  changed "$folder"\n',
        f"{_CONTAINER}/monitoring/test_reload.py::test_what_is_edited_counts_without_a_restart",
        "container",
    ),
    Fault(
        "a dynamic node never registers",
        "images",
        "images/worker/slurmd",
        'set -- "$@" -Z --conf "$NODE_CONF NodeAddr=$POD_IP"',
        'set -- "$@" --conf "$NODE_CONF NodeAddr=$POD_IP"',
        f"{_CONTAINER}/spank/test_isolation.py::test_a_job_has_a_terminal_of_its_own",
        "container",
        setup_may_fail=True,
    ),
    Fault(
        "a resize leaves the record of the node that left",
        "images",
        "images/worker/leave",
        '  scontrol delete nodename="$NODE_NAME" && { say "gone"; exit 0; }\n',
        '  true && { say "gone"; exit 0; }\n',
        f"{_CLUSTER}/edits/test_resize.py::test_a_node_comes_and_goes_and_no_job_is_lost",
        "cluster",
    ),
    Fault(
        "a job holds its node up past the grace",
        "images",
        "images/worker/leave",
        "  if [ $SECONDS -ge $deadline ]; then\n",
        "  if [ $SECONDS -ge $((deadline + 600)) ]; then\n",
        f"{_CLUSTER}/edits/test_resize.py::test_a_job_that_outlives_the_grace_is_requeued",
        "cluster",
    ),
    Fault(
        "a pod that goes takes the drain of a person along",
        "images",
        "images/worker/leave",
        "  stays=yes\n",
        "  stays=\n",
        f"{_CLUSTER}/test_recovery.py::test_somebody_elses_drain_survives_the_pod",
        "cluster",
    ),
    Fault(
        "root removes files that a user's program has named",
        "images",
        "images/worker/preload.c",
        "void pmix_execute_epilog(void *epilog)\n",
        "void pmix_execute_no_epilog(void *epilog)\n",
        f"{_CLUSTER}/escape/test_submission.py::test_root_removes_no_file_for_a_user",
        "cluster",
    ),
    Fault(
        "a waiting controller never takes over from a silent one",
        "images",
        "images/controller/slurmctld",
        "    elif ((SECONDS - since >= patience)); then\n",
        "    elif ((SECONDS - since <= -patience)); then\n",
        f"{_CLUSTER}/test_recovery.py"
        "::test_a_controller_whose_node_falls_silent_gives_up_its_place",
        "cluster",
    ),
    Fault(
        "a partition goes although it has jobs",
        "images",
        "images/controller/check",
        '      refuse "partition $partition is to go, but has jobs ($(wc -l <<<"$jobs"));',
        '      echo "partition $partition is to go, but has jobs ($(wc -l <<<"$jobs"));',
        f"{_CLUSTER}/edits/test_reconfigure.py::test_a_partition_with_jobs_is_not_removed",
        "cluster",
    ),
)

/*
 * The cgroups(7) with which Slurm confines jobs. They are writable only on a node that supports
 * writable cgroups, after agents/cgroups.py has prepared them.
 */
#ifndef SLURMSTACK_CGROUPS_H
#define SLURMSTACK_CGROUPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CGROUPS "/sys/fs/cgroup"

/*
 * Sets *group_fd to the cgroup of the node's own processes, or to -1 if cgroups are not writable.
 * The caller passes it to `join_group`. Returns ACCEPTED or REFUSED.
 */
int open_node_group(int *group_fd);

/*
 * Sets *processes_fd to the cgroup that all slurmstepd processes of a job share, or to -1 if
 * cgroups are not writable. Creates a missing cgroup. Returns ACCEPTED or REFUSED.
 *
 * Without this cgroup, slurmstepd would stay in the cgroup of its step, into which Slurm puts it.
 * If a task used too much memory there, the kernel could kill slurmstepd instead of the task, and
 * the job would never end. A lower oom_score_adj of slurmstepd would also prevent this, but most
 * containers may not lower the oom_score_adj of a process. The shared cgroup also has a memory
 * limit, so that other jobs do not suffer if a user makes slurmstepd use much memory.
 */
int open_daemons_group(uint32_t job_id, int *processes_fd);

/*
 * Sets *group_fd to the cgroup that limits the memory of this process's step, or to -1
 * if there is none. Returns ACCEPTED or REFUSED.
 */
int open_step_group(int *group_fd);

/* Moves a process to an open cgroup; 0 means this process. Returns ACCEPTED or REFUSED. */
int join_group(int group_fd, pid_t pid);

/*
 * Limits the processes and threads of a job on this node to `limit`, or to an eighth of the
 * machine's limit if this eighth is less. Returns ACCEPTED or REFUSED.
 *
 * Sets *group_fd to the job's cgroup, or to -1 if the job has no limit. Sets *processes_fd to the
 * cgroup that each process of the job must join so that the limit applies to it. Sets *processes_fd
 * to -1 if Slurm itself puts the processes into this cgroup.
 */
int limit_processes(uint32_t job_id, uint64_t limit, int *group_fd, int *processes_fd);

/*
 * Returns REFUSED if the job has more processes than its limit. This check is necessary because the
 * kernel enforces the limit at fork(2), but not when a process joins the cgroup. `group_fd` comes
 * from `limit_processes`.
 */
int check_number(int group_fd);

/* Whether an open file belongs to a cgroup. */
bool is_of_cgroup(int fd);

/*
 * Removes the cgroups of an ended job that Slurm has not removed, for example because slurmstepd
 * was killed. For each cgroup, waits up to a minute until its last processes have left.
 */
void remove_groups(uint32_t job_id);

#endif

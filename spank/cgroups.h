/*
 * The cgroups(7) by which Slurm confines jobs, if it does. This process sees the node's cgroups.
 * They are writable only if agents/cgroups.py has prepared them.
 */
#ifndef SLURMSTACK_CGROUPS_H
#define SLURMSTACK_CGROUPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CGROUPS "/sys/fs/cgroup"

/*
 * Sets *group_fd to the cgroup of the node's own processes, for `join_group`; to -1 if cgroups are
 * not writable. Returns ACCEPTED or REFUSED.
 */
int open_node_group(int *group_fd);

/*
 * Sets *processes_fd to the cgroup that all slurmstepd processes of a job share, and creates it if
 * it is missing; to -1 if cgroups are not writable. Returns ACCEPTED or REFUSED.
 *
 * Slurm puts slurmstepd into the cgroup of its step. There, the kernel may kill slurmstepd instead
 * of a task that uses too much memory, and the job would never end. A container can rarely prevent
 * that (oom_score_adj). The shared cgroup has a limit too: a user can make slurmstepd use much
 * memory, which must not affect other jobs.
 */
int open_daemons_group(uint32_t job_id, int *processes_fd);

/*
 * Sets *group_fd to the cgroup that Slurm has made for this process's step, and that limits its
 * memory; to -1 if there is none. Returns ACCEPTED or REFUSED.
 */
int open_step_group(int *group_fd);

/* Moves a process to an open cgroup; 0 means this process. Returns ACCEPTED or REFUSED. */
int join_group(int group_fd, pid_t pid);

/*
 * Limits the processes and threads of a job on this node to `limit`, or to an eighth of the
 * machine's limit if that is less. Returns ACCEPTED or REFUSED.
 *
 * Sets *group_fd to the job's cgroup, or to -1 if nothing is limited. Sets *processes_fd to the
 * cgroup that the job's processes have to join, or to -1 if they need not.
 */
int limit_processes(uint32_t job_id, uint64_t limit, int *group_fd, int *processes_fd);

/*
 * Refuses if the job has more processes than its limit. The kernel enforces the limit at fork(2),
 * but not when a process joins from another cgroup. `group_fd` comes from `limit_processes`.
 */
int check_number(int group_fd);

/* Whether an open file belongs to a cgroup. */
bool is_of_cgroup(int fd);

/*
 * Removes the cgroups of an ended job, if Slurm has not: a slurmstepd may have been killed. For
 * each cgroup, waits up to a minute for processes that are about to leave it.
 */
void remove_groups(uint32_t job_id);

#endif

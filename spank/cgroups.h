/*
 * The groups of processes, of cgroups(7), that Slurm confines a job by, where it does. This process
 * sees them as the node does, and writable only where agents/cgroups.py has prepared them.
 */
#ifndef SLURMSTACK_CGROUPS_H
#define SLURMSTACK_CGROUPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CGROUPS "/sys/fs/cgroup"

/*
 * Sets *group_fd to the group of the node's own processes, for `join_group`, or to -1 where cgroups
 * are not writable. Returns ACCEPTED or REFUSED.
 */
int open_node_group(int *group_fd);

/*
 * Sets *processes_fd to the group that slurmstepd processes of a job share, and makes it if it is missing;
 * to -1 where cgroups are not writable. Slurm puts slurmstepd into the group of its step. There the kernel
 * may end slurmstepd instead of a task that takes too much, since a container can rarely forbid that
 * (oom_score_adj), and the job would never end. The shared group is limited as well: a user can make
 * slurmstepd keep much in memory, which must not cost other jobs. Returns ACCEPTED or REFUSED.
 */
int open_daemons_group(uint32_t job_id, int *processes_fd);

/*
 * Sets *group_fd to the group that limits the memory of this process, which Slurm has made for its
 * step, or to -1 where it is in none. Returns ACCEPTED or REFUSED.
 */
int open_step_group(int *group_fd);

/* Moves a process, or this one for 0, to an open group. Returns ACCEPTED or REFUSED. */
int join_group(int group_fd, pid_t pid);

/*
 * Limits how many processes and threads a job may have on this node: to `limit`, or to an eighth of
 * what the machine can have if that is less. Sets *group_fd to its group, or
 * to -1 where nothing is limited, and *processes_fd to what its processes have to join, or to -1 where
 * they need not. Returns ACCEPTED or REFUSED.
 */
int limit_processes(uint32_t job_id, uint64_t limit, int *group_fd, int *processes_fd);

/*
 * Refuses where the job has more processes than it may have. The kernel refuses a fork that leads to
 * more, but no process that comes from another group. `group_fd` is of `limit_processes`.
 */
int check_number(int group_fd);

/* Whether an open file is of a cgroup. */
bool is_of_cgroup(int fd);

/*
 * Removes the groups of a job that has ended, if Slurm has not: a slurmstepd may have been killed.
 * Waits up to a second for processes that are about to leave them.
 */
void remove_groups(uint32_t job_id);

#endif

/*
 * The keeper is the process that keeps a job's namespaces on a node from the first step to the
 * epilog. It is process 1 of the job's pid namespace: when the epilog ends the keeper, the kernel
 * kills all remaining processes of the job.
 */
#ifndef SLURMSTACK_KEEPER_H
#define SLURMSTACK_KEEPER_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Sets *keeper_fd to a pidfd of the job's keeper, or to -1 if there is none. `job_fd` is the job's
 * directory below scratch=. Returns ACCEPTED or REFUSED.
 */
int find_keeper(int job_fd, int *keeper_fd);

/*
 * Starts the keeper of this process's namespaces, and sets *keeper_fd to its pidfd. Returns
 * ACCEPTED or REFUSED.
 *
 * The keeper mounts the /proc of its pid namespace on `proc_fd`, for a job of `uid`. It joins the
 * cgroup `group_fd`, unless that is -1. The keeper runs longer than the step. If it stayed in the
 * step's cgroup, Slurm could not remove this cgroup at the end of the step.
 */
int start_keeper(int job_fd, int proc_fd, int group_fd, uid_t uid, int *keeper_fd);

/* Ends the keeper, if any, and waits up to 10 seconds until the job's processes have ended. */
void end_keeper(int job_fd);

#endif

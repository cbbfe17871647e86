/*
 * The process that keeps a job's namespaces on a node while steps come and go.
 *
 * The first step makes it; the later ones find it and join its namespaces; the epilog ends
 * it. It is process 1 of the job: orphans become its children, and when it ends, the kernel ends
 * all that is left of the job.
 */
#ifndef SLURMSTACK_KEEPER_H
#define SLURMSTACK_KEEPER_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Sets *keeper_fd to a pidfd of the job's keeper, or to -1 where there is none. `job_fd` is
 * the job's directory below scratch=. Returns ACCEPTED or REFUSED.
 */
int find_keeper(int job_fd, int *keeper_fd);

/*
 * Makes the keeper of the namespaces that this process is in, and sets *keeper_fd to its
 * pidfd. It mounts the /proc of its pid namespace on `proc_fd`, for a job of `uid`, and is in the
 * group `group_fd`, unless that is -1: it outlives the step that makes it, and Slurm could not
 * remove the step's.
 */
int start_keeper(int job_fd, int proc_fd, int group_fd, uid_t uid, int *keeper_fd);

/* Ends the keeper, if there is one, and waits until all processes of its namespace are gone. */
void end_keeper(int job_fd);

#endif

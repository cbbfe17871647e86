/* A job's own directories on the node: made by its first step, removed after its epilog. */
#ifndef SLURMSTACK_FILES_H
#define SLURMSTACK_FILES_H

#include <stdint.h>
#include <sys/types.h>

/* Below scratch= and shm=, which may be writable by others (an emptyDir is, /dev/shm too). */
#define JOBS_DIRECTORY "slurm-jobs"
/* "<jobid>.<uid>": two 32-bit numbers, the dot and the final NUL. */
#define JOB_NAME_SIZE 24

#define PRIVATE_MODE ((mode_t)0700)
#define ROOT_MODE ((mode_t)0755)
#define TMP_MODE ((mode_t)01777)

/*
 * With the user in the name, a leftover of an older job with the same number (a controller
 * that lost its state counts from 1 again) never meets another user.
 */
void format_job_name(char name[JOB_NAME_SIZE], uint32_t job_id, uid_t uid);

/* Opens <base>/slurm-jobs/<job_name>, made where it is missing; or REFUSED. */
int open_job(const char *base, const char *job_name);

/*
 * Makes the directory `name` below `parent` unless it is there, opens it, and sees to it that
 * it is root's and has this mode; a private one that others can enter is refused. `base` is
 * for messages.
 */
int open_own_directory(int parent, const char *name, const char *base, mode_t mode);

/*
 * Gives the socket of a step's slurmstepd, in slurmd's spool directory, to the job's user. Slurm
 * leaves it open to everybody, and reads what it is sent before it looks at who asks. Sets *n_steps
 * to the number of steps of the job that have a socket there. Returns ACCEPTED or REFUSED.
 */
int give_socket(const char *spool, uint32_t job_id, uint32_t step_id, uid_t uid, uint64_t *n_steps);

/*
 * Ends the job's processes and moves its directories below `base` aside, for every user that its
 * number ever belonged to. Removal may take long, and the epilog does not wait for it.
 */
void end_job(const char *base, uint32_t job_id);

/*
 * Removes the directories of ended jobs below both bases, unless another process does: one process
 * per job would be too many. The jobs take turns, so that none waits for a job that another one
 * keeps filling.
 */
void remove_ended(const char *const bases[2]);

#endif

/* A job's own directories on the node, from its first step until after its epilog. */
#ifndef SLURMSTACK_FILES_H
#define SLURMSTACK_FILES_H

#include <stdint.h>
#include <sys/types.h>

/* Below scratch= and shm=, where other users may write, for example in an emptyDir or /dev/shm. */
#define JOBS_DIRECTORY "slurm-jobs"
/* "<jobid>.<uid>": two 32-bit numbers, the dot and the final NUL. */
#define JOB_NAME_SIZE 24

#define PRIVATE_MODE ((mode_t)0700)
#define ROOT_MODE ((mode_t)0755)
#define TMP_MODE ((mode_t)01777)

/*
 * The name contains the uid, because job ids repeat: slurmctld restarts at 1 after it has lost its
 * state. So a job never gets files of another user's older job.
 */
void format_job_name(char name[JOB_NAME_SIZE], uint32_t job_id, uid_t uid);

/* Opens <base>/slurm-jobs/<job_name>, and creates it if it is missing. May return REFUSED. */
int open_job(const char *base, const char *job_name);

/*
 * Opens the directory `name` below `parent`, and creates it if it is missing. Sets its mode.
 * Returns REFUSED if it does not belong to root, or if it is private and others can enter it.
 * `base` is for messages.
 */
int open_own_directory(int parent, const char *name, const char *base, mode_t mode);

/* Numbers of steps that have a slurmstepd on the node. */
struct n_steps {
	uint64_t of_job, of_node;
};

/*
 * Makes the job's user the owner of the socket of a step's slurmstepd, in slurmd's spool directory.
 * Slurm lets all users connect, and reads a message before it checks the sender. Sets *n_steps to
 * the numbers of sockets in the directory. Returns ACCEPTED or REFUSED.
 */
int give_socket(const char *spool, uint32_t job_id, uint32_t step_id, uid_t uid,
		struct n_steps *n_steps);

/*
 * Ends the processes of the job, for each user that had a job with this id. Renames the job's
 * directories below `base`: their removal can take long, and the epilog does not wait for it.
 */
void end_job(const char *base, uint32_t job_id);

/*
 * Removes the directories of ended jobs below both bases. Returns if another process is doing this:
 * one process for each job would be too many. Alternates between the directories, because running
 * processes may still write to one of them.
 */
void remove_ended(const char *const bases[2]);

#endif

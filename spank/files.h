/*
 * A job's private directories on the node. The job's first step creates these directories, and the
 * epilog removes them.
 */
#ifndef SLURMSTACK_FILES_H
#define SLURMSTACK_FILES_H

#include <stdint.h>
#include <sys/types.h>

/*
 * Directory below scratch= and below shm= with the directories of all jobs. Other users may be able
 * to write to scratch= and shm=, for example if shm= is /dev/shm.
 */
#define JOBS_DIRECTORY "slurm-jobs"
/* "<jobid>.<uid>": two 32-bit numbers, the dot and the NUL. */
#define JOB_NAME_SIZE 24

#define PRIVATE_MODE ((mode_t)0700)
#define ROOT_MODE ((mode_t)0755)
#define TMP_MODE ((mode_t)01777)

/*
 * The name contains the uid, so that a job never gets the files of another user's older job with
 * the same id: slurmctld restarts at 1 after it has lost its state.
 */
void format_job_name(char name[JOB_NAME_SIZE], uint32_t job_id, uid_t uid);

/* Opens <base>/slurm-jobs/<job_name>. Creates it if it is missing. Returns REFUSED on failure. */
int open_job(const char *base, const char *job_name);

/*
 * Opens the directory `name` below `parent`, and creates it if it is missing. Returns REFUSED if
 * the directory does not belong to root. With PRIVATE_MODE, also returns REFUSED if other users
 * have any access. With another mode, sets this mode. Messages contain `base`.
 */
int open_own_directory(int parent, const char *name, const char *base, mode_t mode);

/* Numbers of running steps on the node: steps of one job, and steps of all jobs. */
struct n_steps {
	uint64_t of_job, of_node;
};

/*
 * Lets only the job's user and root connect to slurmstepd's socket in slurmd's spool directory.
 * Without this function, all users could connect, because Slurm permits it, and slurmstepd reads a
 * message before it checks the sender. Sets *n_steps to the numbers of sockets in the directory.
 * Returns ACCEPTED or REFUSED.
 */
int give_socket(const char *spool, uint32_t job_id, uint32_t step_id, uid_t uid,
		struct n_steps *n_steps);

/*
 * Ends the processes of all jobs with this id (see format_job_name). Renames their directories
 * below `base`, because the epilog does not wait for their removal, which can take long.
 */
void end_job(const char *base, uint32_t job_id);

/*
 * Removes the directories of ended jobs below both paths in `bases`. Returns at once if another
 * process is already removing them, because one process is enough. Alternates between the
 * directories, because the removal of one directory does not end while another job still writes to
 * it.
 */
void remove_ended(const char *const bases[2]);

#endif

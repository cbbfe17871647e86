/*
 * job_container/slurmstack: plugin that makes slurmd write the files of `sbcast` and `srun --bcast`
 * into the job's own root (the jail).
 *
 * Without this plugin, slurmd would write these files outside the jail, because the SPANK plugin
 * (chroot.c) moves only slurmstepd into the jail. slurmd calls container_p_join in a child process,
 * which later becomes the user and opens the file. In container_p_join, the child process joins the
 * mount namespace of the job. The other functions of this plugin do nothing, because the SPANK
 * plugin does their work.
 *
 * slurmd's environment variable SLURMSTACK_SCRATCH has the value of the SPANK plugin's scratch=.
 */
#include "capabilities.h"
#include "files.h"
#include "keeper.h"
#include "preload.h"
#include "report.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* Export only the symbols that Slurm looks up. */
#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

extern const char plugin_name[], plugin_type[];
extern const uint32_t plugin_version;
int init(void);
int fini(void);
int container_p_restore(char *directory, bool recover);
int container_p_join(slurm_step_id_t *step, uid_t uid, bool creates_step);
int container_p_join_external(uint32_t job_id);
int container_p_stepd_create(uint32_t job_id, void *step);
int container_p_stepd_delete(uint32_t job_id);
int container_p_send_stepd(int fd);
int container_p_recv_stepd(int fd);
#pragma GCC visibility pop

const char plugin_name[] = "files for jobs in the jail";
const char plugin_type[] = "job_container/slurmstack";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

/* True in slurmd and its forks. False in slurmstepd, which the SPANK plugin moves into the job. */
static bool in_slurmd = false;

/* ---- joining the job ---- */

/*
 * Times in milliseconds. With PrologFlags=Contain, Slurm starts a step on each node at the start of
 * the job. However, the batch script on one node may run sbcast before this first step has started
 * on another node. So this process waits for the first step. It stops waiting before Slurm stops
 * waiting for the response.
 */
enum { FIRST_STEP_TIMEOUT = 7000, FIRST_STEP_POLL = 50 };

static int await_keeper(int job_fd, int *keeper)
{
	int rc = find_keeper(job_fd, keeper);

	for (int waited = 0; rc == ACCEPTED && *keeper < 0 && waited < FIRST_STEP_TIMEOUT;
	     waited += FIRST_STEP_POLL) {
		(void)poll(NULL, 0, FIRST_STEP_POLL);
		rc = find_keeper(job_fd, keeper);
	}
	return rc;
}

/* Sets *keeper to a pidfd of the job's keeper. Refuses if the job's first step has not started. */
static int open_jobs_keeper(uint32_t job_id, uid_t uid, int *keeper)
{
	const char *scratch = getenv("SLURMSTACK_SCRATCH");
	char job_name[JOB_NAME_SIZE];
	int rc, job_fd;

	*keeper = -1;
	if (scratch == NULL)
		return refuse("SLURMSTACK_SCRATCH is not set in slurmd's environment: set it to "
			      "scratch= of plugstack.conf");
	format_job_name(job_name, job_id, uid);
	job_fd = open_job(scratch, job_name);
	if (job_fd < 0)
		return REFUSED;
	rc = await_keeper(job_fd, keeper);
	close_fd(&job_fd);
	if (rc == ACCEPTED && *keeper < 0)
		rc = refuse("cannot write the file of sbcast: job %s has not entered the jail on "
			    "this node; run sbcast again", job_name);
	return rc;
}

/* Makes preload.so accept only regular files that the user owns. */
static int tell_preload(void)
{
	bool *opens_for_user = flag_of_preload();

	if (opens_for_user == NULL)
		return refuse("preload.so is not loaded: start slurmd with it in LD_PRELOAD");
	*opens_for_user = true;
	return ACCEPTED;
}

int container_p_join(slurm_step_id_t *step, uid_t uid, bool creates_step)
{
	int rc, keeper;

	if (!in_slurmd || creates_step)
		return SLURM_SUCCESS;
	rc = open_jobs_keeper(step->job_id, uid, &keeper);
	/* setns(2) also changes the root and the working directory to those of the job. */
	if (rc == ACCEPTED && setns(keeper, CLONE_NEWNS) < 0)
		rc = refuse("cannot join the mount namespace of the job: %s", strerror(errno));
	/* For users other than root, this process loses its capabilities when it becomes the user. */
	if (rc == ACCEPTED && uid == 0 && give_up_capabilities() < 0)
		rc = refuse("cannot drop capabilities: %s", strerror(errno));
	close_fd(&keeper);
	if (rc == ACCEPTED)
		rc = tell_preload();
	return rc == ACCEPTED ? SLURM_SUCCESS : SLURM_ERROR;
}

/* ---- functions whose work the SPANK plugin does ---- */

/* Slurm calls this function only in slurmd, when slurmd starts. */
int container_p_restore(char *directory, bool recover)
{
	(void)directory;
	(void)recover;
	in_slurmd = true;
	return SLURM_SUCCESS;
}

int init(void)
{
	return SLURM_SUCCESS;
}

int fini(void)
{
	return SLURM_SUCCESS;
}

/*
 * Slurm calls this function for pam_slurm_adopt, which slurmstack does not use. pam_slurm_adopt
 * would need a descriptor of the job's mount namespace.
 */
int container_p_join_external(uint32_t job_id)
{
	(void)job_id;
	return -1;
}

int container_p_stepd_create(uint32_t job_id, void *step)
{
	(void)job_id;
	(void)step;
	return SLURM_SUCCESS;
}

int container_p_stepd_delete(uint32_t job_id)
{
	(void)job_id;
	return SLURM_SUCCESS;
}

int container_p_send_stepd(int fd)
{
	(void)fd;
	return SLURM_SUCCESS;
}

int container_p_recv_stepd(int fd)
{
	(void)fd;
	return SLURM_SUCCESS;
}

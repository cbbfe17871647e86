#include "files.h"

#include "keeper.h"
#include "report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#include <slurm/spank.h>
#pragma GCC visibility pop

/* Only the job's user and root can connect. */
#define SOCKET_MODE 0600
/* Number of directory entries of one job that are removed before entries of the next job. */
#define TURN 10000
/* Prefix of the directories of ended jobs: ended.<job name>.<number>. */
#define ENDED "ended."
#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* ---- directories of a job ---- */

void format_job_name(char name[JOB_NAME_SIZE], uint32_t job_id, uid_t uid)
{
	(void)snprintf(name, JOB_NAME_SIZE, "%" PRIu32 ".%" PRIu32, job_id, (uint32_t)uid);
}

int open_own_directory(int parent, const char *name, const char *base, mode_t mode)
{
	struct stat status;
	int fd;

	if (mkdirat(parent, name, PRIVATE_MODE) < 0 && errno != EEXIST)
		return refuse("cannot make directory %s below %s: %s", name, base,
			      strerror(errno));
	fd = openat(parent, name, DIRECTORY);
	if (fd < 0)
		return refuse("cannot open directory %s below %s: %s", name, base,
			      strerror(errno));
	if (fstat(fd, &status) < 0)
		(void)refuse("cannot examine directory %s below %s: %s", name, base,
			     strerror(errno));
	else if (status.st_uid != 0)
		(void)refuse("directory %s below %s belongs to user %" PRIu32 ": expected root; "
			     "remove it", name, base, (uint32_t)status.st_uid);
	else if (mode == PRIVATE_MODE && (status.st_mode & 077) != 0)
		(void)refuse("directory %s below %s is open to others (mode %04o): expected 0700; "
			     "remove it", name, base, (unsigned int)(status.st_mode & 07777));
	else if (mode != PRIVATE_MODE && fchmod(fd, mode) < 0)
		(void)refuse("cannot set the mode of directory %s below %s: %s", name, base,
			     strerror(errno));
	else
		return fd;
	close_fd(&fd);
	return REFUSED;
}

int open_job(const char *base, const char *job_name)
{
	int base_fd, jobs_fd, job_fd = REFUSED;

	base_fd = open(base, DIRECTORY);
	if (base_fd < 0)
		return refuse("cannot open directory %s on the node: %s", base, strerror(errno));
	jobs_fd = open_own_directory(base_fd, JOBS_DIRECTORY, base, PRIVATE_MODE);
	if (jobs_fd >= 0)
		job_fd = open_own_directory(jobs_fd, job_name, base, PRIVATE_MODE);
	close_fd(&jobs_fd);
	close_fd(&base_fd);
	return job_fd;
}

/* Opens the directory `name` below `parent` for readdir(3). Returns NULL with errno on failure. */
static DIR *open_entries(int parent, const char *name)
{
	int fd = openat(parent, name, DIRECTORY);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	if (stream == NULL)
		close_fd(&fd);
	return stream;
}

/* ---- slurmstepd's socket ---- */

/*
 * Whether a socket's name belongs to a step. In a heterogeneous job, the number of the component
 * may follow the step's id.
 */
static bool is_of_step(const char *name, const char *step)
{
	const char *found = strstr(name, step);

	return found != NULL && (found[strlen(step)] == '\0' || found[strlen(step)] == '.');
}

/* Whether a name, such as "cpu-0_123.0", is a step's socket and not another file of a step. */
static bool is_socket(const char *name)
{
	const char *job = strrchr(name, '_');
	size_t length = job == NULL ? 0 : strspn(job + 1, "0123456789");

	return length > 0 && job[1 + length] == '.' &&
	       job[1 + strspn(job + 1, "0123456789.")] == '\0';
}

static void count_step(struct n_steps *n_steps, const char *name, const char *job)
{
	if (!is_socket(name))
		return;
	n_steps->of_node++;
	n_steps->of_job += strstr(name, job) != NULL;
}

static int give_entry(int spool_fd, const char *spool, const char *name, uid_t uid)
{
	struct stat status;

	if (fstatat(spool_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse("cannot examine %s/%s: %s", spool, name, strerror(errno));
	if (!S_ISSOCK(status.st_mode))
		return ACCEPTED;
	if (fchmodat(spool_fd, name, SOCKET_MODE, 0) < 0 ||
	    fchownat(spool_fd, name, uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse("cannot restrict access to the step's socket %s/%s: %s", spool,
			      name, strerror(errno));
	return ACCEPTED;
}

int give_socket(const char *spool, uint32_t job_id, uint32_t step_id, uid_t uid,
		struct n_steps *n_steps)
{
	char job[JOB_NAME_SIZE], step[2 * JOB_NAME_SIZE];
	struct dirent *entry;
	DIR *stream;
	int spool_fd, rc = ACCEPTED;

	*n_steps = (struct n_steps){0};
	(void)snprintf(job, sizeof(job), "_%" PRIu32 ".", job_id);
	(void)snprintf(step, sizeof(step), "%s%" PRIu32, job, step_id);
	spool_fd = open(spool, DIRECTORY);
	if (spool_fd < 0)
		return refuse("cannot open directory %s on the node: %s", spool, strerror(errno));
	stream = open_entries(spool_fd, ".");
	if (stream == NULL) {
		rc = refuse("cannot list %s on the node: %s", spool, strerror(errno));
		goto out;
	}
	while (rc == ACCEPTED && (errno = 0, entry = readdir(stream)) != NULL) {
		count_step(n_steps, entry->d_name, job);
		if (is_of_step(entry->d_name, step))
			rc = give_entry(spool_fd, spool, entry->d_name, uid);
	}
	if (rc == ACCEPTED && errno != 0)
		rc = refuse("cannot list %s on the node: %s", spool, strerror(errno));
	(void)closedir(stream);
out:
	close_fd(&spool_fd);
	return rc;
}

/* ---- the end of a job ---- */

/*
 * Ends the access of users to a directory before its removal. The job's processes have ended, but
 * they may have passed the directory's descriptor to another job. This other job could create files
 * faster than this process removes them. Returns 0 or an error number.
 */
static int close_to_users(int fd)
{
	return fchown(fd, 0, 0) < 0 || fchmod(fd, PRIVATE_MODE) < 0 ? errno : 0;
}

/* Number of directories that `dissolve` has moved. Part of the unique name of a moved directory. */
static unsigned long moves = 0;
/* Number of entries that may still be removed in this turn. */
static unsigned long turn = ULONG_MAX;

/*
 * Returns the next entry except "." and "..". Returns NULL with errno: 0 at the end of the
 * directory, EAGAIN at the end of the turn.
 */
static struct dirent *next_entry(DIR *stream)
{
	struct dirent *entry;

	do {
		errno = 0;
		entry = readdir(stream);
	} while (entry != NULL &&
		 (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
	if (entry == NULL || turn-- > 0)
		return entry;
	turn = 0;
	errno = EAGAIN;
	return NULL;
}

/*
 * Removes `directory` with its files, and moves its subdirectories into `top`. Returns 0, or -1
 * with errno: EAGAIN at the end of the turn.
 */
static int dissolve(int top, const char *directory)
{
	char moved[32];
	struct dirent *entry;
	DIR *stream = open_entries(top, directory);
	int fd, error;

	if (stream == NULL)
		return -1;
	fd = dirfd(stream);
	error = close_to_users(fd);
	while (error == 0 && (entry = next_entry(stream)) != NULL) {
		if (unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT)
			continue;
		error = errno;
		while (error == EISDIR || error == EEXIST) {
			(void)snprintf(moved, sizeof(moved), ".removed-%lu", moves++);
			error = renameat2(fd, entry->d_name, top, moved, RENAME_NOREPLACE) < 0
					? errno
					: 0;
		}
	}
	if (error == 0)
		error = errno;
	(void)closedir(stream);
	if (error == 0 && unlinkat(top, directory, AT_REMOVEDIR) < 0)
		error = errno;
	errno = error;
	return error == 0 ? 0 : -1;
}

/*
 * Removes the directory `name` below `parent` with its contents, without recursion: users can nest
 * directories deeper than the limits of stacks, paths and open files. Returns 0, or -1 with errno:
 * EAGAIN at the end of the turn.
 */
static int remove_tree(int parent, const char *name)
{
	bool found = true;
	struct dirent *entry;
	DIR *stream = open_entries(parent, name);
	int fd, error;

	if (stream == NULL)
		return -1;
	fd = dirfd(stream);
	error = close_to_users(fd);
	while (error == 0 && found) {
		found = false;
		rewinddir(stream);
		while (error == 0 && (entry = next_entry(stream)) != NULL) {
			found = true;
			if (unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT)
				continue;
			if (errno != EISDIR || dissolve(fd, entry->d_name) < 0)
				error = errno;
		}
		if (error == 0)
			error = errno;
	}
	(void)closedir(stream);
	if (error == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0)
		error = errno;
	errno = error;
	return error == 0 ? 0 : -1;
}

/* Renames the directory of an ended job. Returns 0, or -1 with errno. */
static int put_aside(int jobs_fd, const char *name)
{
	char aside[NAME_MAX + 32];
	unsigned long n = 0;
	int rc;

	do {
		(void)snprintf(aside, sizeof(aside), ENDED "%s.%lu", name, n++);
		rc = renameat2(jobs_fd, name, jobs_fd, aside, RENAME_NOREPLACE);
	} while (rc < 0 && errno == EEXIST);
	return rc;
}

/*
 * Calls `act` for each entry of <base>/slurm-jobs whose name begins with `prefix`. Returns the
 * number of calls that returned true, or -1 with errno.
 */
static int for_each(const char *base, const char *prefix,
		    bool (*act)(int jobs_fd, const char *base, const char *name))
{
	struct dirent *entry;
	DIR *stream = NULL;
	int base_fd, count = 0;

	base_fd = open(base, DIRECTORY);
	if (base_fd >= 0)
		stream = open_entries(base_fd, JOBS_DIRECTORY);
	/* The directory is missing if no step has run on this node yet. */
	if (stream == NULL && (base_fd < 0 || errno != ENOENT))
		count = -1;
	while (stream != NULL && (entry = readdir(stream)) != NULL)
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
			count += act(dirfd(stream), base, entry->d_name);
	if (stream != NULL)
		(void)closedir(stream);
	close_fd(&base_fd);
	return count;
}

static bool end_one(int jobs_fd, const char *base, const char *name)
{
	int job_fd = openat(jobs_fd, name, DIRECTORY);

	if (job_fd >= 0)
		end_keeper(job_fd);
	close_fd(&job_fd);
	/* A full disk may prevent the renaming. Then remove the directory at once. */
	if (put_aside(jobs_fd, name) < 0 && remove_tree(jobs_fd, name) < 0)
		(void)refuse("cannot remove %s/%s/%s: %s", base, JOBS_DIRECTORY, name,
			     strerror(errno));
	return true;
}

void end_job(const char *base, uint32_t job_id)
{
	char prefix[JOB_NAME_SIZE];

	(void)snprintf(prefix, sizeof(prefix), "%" PRIu32 ".", job_id);
	if (for_each(base, prefix, end_one) < 0)
		(void)refuse("cannot list the jobs' directories below %s on the node: %s", base,
			     strerror(errno));
}

/* True only in the first round, because later rounds would report the same failures again. */
static bool reports_failures = true;

/* Returns whether another round may find more to remove. */
static bool remove_one(int jobs_fd, const char *base, const char *name)
{
	int rc;

	turn = TURN;
	rc = remove_tree(jobs_fd, name);
	turn = ULONG_MAX;
	if (rc < 0 && errno != EAGAIN && reports_failures)
		(void)refuse("cannot remove %s/%s/%s: %s", base, JOBS_DIRECTORY, name,
			     strerror(errno));
	return rc == 0 || errno == EAGAIN;
}

static bool remove_round(const char *const bases[2])
{
	bool any = false;

	for (int i = 0; i < 2; i++)
		any |= for_each(bases[i], ENDED, remove_one) > 0;
	reports_failures = false;
	return any;
}

void remove_ended(const char *const bases[2])
{
	char path[PATH_MAX];
	int jobs_fd;

	(void)snprintf(path, sizeof(path), "%s/" JOBS_DIRECTORY, bases[0]);
	jobs_fd = open(path, DIRECTORY);
	reports_failures = true;
	if (jobs_fd >= 0 && flock(jobs_fd, LOCK_EX | LOCK_NB) == 0)
		while (remove_round(bases))
			;
	close_fd(&jobs_fd);
}

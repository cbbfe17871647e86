#include "cgroups.h"

#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/*
 * Version 2 of cgroups has only one hierarchy. There, Slurm puts all jobs into one cgroup. The name
 * of this cgroup contains the node's name.
 */
#define OF_SCOPE CGROUPS "/system.slice/%s_slurmstepd.scope/job_"
/* Cgroups of slurmstepd on each version. agents/cgroups.py creates their parent cgroups. */
#define DAEMONS_V2 CGROUPS "/slurmstepd/job_"
#define DAEMONS_V1 CGROUPS "/memory/slurmstepd/job_"
/*
 * Memory limit of slurmstepd's cgroup in bytes. Even for a job with many steps, the usage is far
 * lower. The usage does not include the memory that slurmstepd allocated before it joined this
 * cgroup.
 */
#define DAEMONS_MEMORY (UINT64_C(512) << 20)
/* Version 1 has a hierarchy for each resource. Slurm does not use the hierarchy `pids`. */
#define PIDS CGROUPS "/pids/slurm"
#define OF_PIDS PIDS "/job_"
#define PROCESSES "cgroup.procs"
#define LIMIT "pids.max"
#define USED "pids.current"
#define COUNT_SIZE sizeof("18446744073709551615\n")
#define MACHINE_LIMIT "/proc/sys/kernel/pid_max"
#define OWN_GROUPS "/proc/self/cgroup"
/* Start of the line for version 2 in the file OWN_GROUPS. */
#define V2_LINE "0::"
/*
 * A job may use 1/SHARE of the machine's limit of processes, because other jobs and the machine
 * itself also need processes.
 */
#define SHARE 8
#define GROUP (O_PATH | O_DIRECTORY | O_CLOEXEC)
#define GROUP_MODE 0755
/* Maximum number of descriptors that nftw(3) keeps open, one for each level of directories. */
#define LEVELS 8
/* Attempts to remove a cgroup, and microseconds between two attempts. */
#define TRIES 600
#define PAUSE 100000

typedef char path_text[PATH_MAX];

/* Whether this errno means that the cgroup is missing or read-only. */
static bool is_unprepared(int error)
{
	return error == ENOENT || error == EROFS;
}

/* ---- members ---- */

/* Opens the cgroup `system` on version 2, or the root of the hierarchy `freezer` on version 1. */
int open_node_group(int *group_fd)
{
	static const char *const paths[] = {
		CGROUPS "/system/" PROCESSES,
		CGROUPS "/freezer/" PROCESSES,
	};

	*group_fd = -1;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		*group_fd = open(paths[i], O_WRONLY | O_CLOEXEC);
		if (*group_fd >= 0)
			return ACCEPTED;
		if (!is_unprepared(errno))
			return refuse("cannot open %s: %s", paths[i], strerror(errno));
	}
	return ACCEPTED;
}

/*
 * Returns the path of the step's cgroup in a line of /proc/self/cgroup; NULL if the line contains
 * no such path. On version 1, the path in the line may begin with the container's own cgroup.
 */
static const char *path_of_step(const char *line)
{
	if (strncmp(line, V2_LINE, strlen(V2_LINE)) == 0)
		return strstr(line, "/system.slice/");
	return strstr(line, ":memory:") == NULL ? NULL : strstr(line, "/slurm_");
}

static int open_group_of_line(const char *line, int *group_fd)
{
	bool of_version_2 = strncmp(line, V2_LINE, strlen(V2_LINE)) == 0;
	const char *path = path_of_step(line);
	path_text processes;

	if (path == NULL)
		return ACCEPTED;
	(void)snprintf(processes, sizeof(processes), CGROUPS "%s%s/" PROCESSES,
		       of_version_2 ? "" : "/memory", path);
	*group_fd = open(processes, O_WRONLY | O_CLOEXEC);
	return *group_fd < 0 ? refuse("cannot open %s: %s", processes, strerror(errno))
			     : ACCEPTED;
}

int open_step_group(int *group_fd)
{
	char text[BUFSIZ], *line, *rest = text;
	int fd = open(OWN_GROUPS, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	int rc = ACCEPTED;

	*group_fd = -1;
	if (length < 0)
		rc = refuse("cannot read " OWN_GROUPS ": %s", strerror(errno));
	close_fd(&fd);
	text[length < 0 ? 0 : length] = '\0';
	while (rc == ACCEPTED && *group_fd < 0 && (line = strsep(&rest, "\n")) != NULL)
		rc = open_group_of_line(line, group_fd);
	return rc;
}

static int open_group(const char *group, int *group_fd)
{
	*group_fd = open(group, GROUP);
	return *group_fd < 0 ? refuse("cannot open %s: %s", group, strerror(errno)) : ACCEPTED;
}

static int open_processes(int group_fd, const char *group, int *processes_fd)
{
	*processes_fd = openat(group_fd, PROCESSES, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	return *processes_fd < 0
		       ? refuse("cannot open %s/" PROCESSES ": %s", group, strerror(errno))
		       : ACCEPTED;
}

int join_group(int group_fd, pid_t pid)
{
	if (dprintf(group_fd, "%d", pid) < 0)
		return refuse("cannot move a process to its cgroup: %s", strerror(errno));
	return ACCEPTED;
}

/* ---- limits ---- */

/* Writes a limit of a cgroup. If its file is missing, does nothing: the kernel lacks this limit. */
static int write_limit(int group_fd, const char *group, const char *name, uint64_t limit)
{
	int rc = ACCEPTED;
	int fd = openat(group_fd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && is_unprepared(errno))
		return ACCEPTED;
	if (fd < 0 || dprintf(fd, "%" PRIu64, limit) < 0)
		rc = refuse("cannot write %s/%s: %s", group, name, strerror(errno));
	close_fd(&fd);
	return rc;
}

/* ---- the memory of slurmstepd ---- */

static const struct daemons_group {
	const char *prefix, *memory, *swap;
	/* Value for the file `swap`. On version 1, this file limits the sum of memory and swap. */
	uint64_t most_swap;
} daemons_groups[] = {
	{DAEMONS_V2, "memory.max", "memory.swap.max", 0},
	{DAEMONS_V1, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", DAEMONS_MEMORY},
};

static int open_limited_group(const struct daemons_group *kind, const char *group, int *processes_fd)
{
	int group_fd, rc = open_group(group, &group_fd);

	if (rc < 0)
		return REFUSED;
	rc = write_limit(group_fd, group, kind->memory, DAEMONS_MEMORY);
	if (rc == ACCEPTED)
		rc = write_limit(group_fd, group, kind->swap, kind->most_swap);
	if (rc == ACCEPTED)
		rc = open_processes(group_fd, group, processes_fd);
	close_fd(&group_fd);
	return rc;
}

int open_daemons_group(uint32_t job_id, int *processes_fd)
{
	*processes_fd = -1;
	for (size_t i = 0; i < ARRAY_SIZE(daemons_groups); i++) {
		path_text group;

		(void)snprintf(group, sizeof(group), "%s%" PRIu32, daemons_groups[i].prefix, job_id);
		if (mkdir(group, GROUP_MODE) == 0 || errno == EEXIST)
			return open_limited_group(&daemons_groups[i], group, processes_fd);
		if (!is_unprepared(errno))
			return refuse("cannot make %s: %s", group, strerror(errno));
	}
	return ACCEPTED;
}

/* ---- number of processes ---- */

/* Sets *number to the machine's limit on processes. All its containers together have this limit. */
static int read_machine_limit(uint64_t *number)
{
	char text[COUNT_SIZE];
	int fd = open(MACHINE_LIMIT, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	int rc = ACCEPTED;

	if (length <= 0)
		rc = refuse("cannot read " MACHINE_LIMIT ": %s", strerror(errno));
	else
		text[length] = '\0';
	close_fd(&fd);
	*number = rc == ACCEPTED ? strtoull(text, NULL, 10) : 0;
	return rc;
}

static int open_made_group(const char *group, uint64_t limit, int *group_fd, int *processes_fd)
{
	if (open_group(group, group_fd) < 0 || write_limit(*group_fd, group, LIMIT, limit) < 0)
		return REFUSED;
	return open_processes(*group_fd, group, processes_fd);
}

/* Creates the job's cgroup in the hierarchy `pids`, which Slurm does not use on version 1. */
static int limit_on_version_1(uint32_t job_id, uint64_t limit, int *group_fd, int *processes_fd)
{
	path_text group;

	(void)snprintf(group, sizeof(group), OF_PIDS "%" PRIu32, job_id);
	if (mkdir(PIDS, GROUP_MODE) < 0 && errno != EEXIST)
		return is_unprepared(errno)
			       ? ACCEPTED
			       : refuse("cannot make " PIDS ": %s", strerror(errno));
	if (mkdir(group, GROUP_MODE) < 0 && errno != EEXIST)
		return refuse("cannot make %s: %s", group, strerror(errno));
	return open_made_group(group, limit, group_fd, processes_fd);
}

int limit_processes(uint32_t job_id, uint64_t limit, int *group_fd, int *processes_fd)
{
	const char *node_name = getenv("NODE_NAME");
	uint64_t machine_limit;
	path_text group;

	*group_fd = *processes_fd = -1;
	if (read_machine_limit(&machine_limit) < 0)
		return REFUSED;
	if (limit > machine_limit / SHARE)
		limit = machine_limit / SHARE;
	(void)snprintf(group, sizeof(group), OF_SCOPE "%" PRIu32,
		       node_name == NULL ? "" : node_name, job_id);
	*group_fd = open(group, GROUP);
	if (*group_fd < 0 && errno == ENOENT)
		return limit_on_version_1(job_id, limit, group_fd, processes_fd);
	if (*group_fd < 0)
		return refuse("cannot open %s: %s", group, strerror(errno));
	return write_limit(*group_fd, group, LIMIT, limit);
}

/* Sets *number to the number in a file of a cgroup, unless the file is missing. */
static int read_number(int group_fd, const char *name, uint64_t *number)
{
	char text[COUNT_SIZE];
	ssize_t length;
	int rc = ACCEPTED;
	int fd = openat(group_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && is_unprepared(errno))
		return ACCEPTED;
	length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (length < 0)
		rc = refuse("cannot read %s of the job's cgroup: %s", name, strerror(errno));
	close_fd(&fd);
	text[length < 0 ? 0 : length] = '\0';
	*number = strtoull(text, NULL, 10);
	return rc;
}

int check_number(int group_fd)
{
	uint64_t used = 0, limit = 0;

	if (read_number(group_fd, LIMIT, &limit) < 0 || read_number(group_fd, USED, &used) < 0)
		return REFUSED;
	return used > limit ? refuse("the job has reached its limit of %" PRIu64
				     " processes on this node: start fewer processes", limit)
			    : ACCEPTED;
}

bool is_of_cgroup(int fd)
{
	struct statfs status;

	return fstatfs(fd, &status) == 0 && (status.f_type == CGROUP_SUPER_MAGIC ||
					     status.f_type == CGROUP2_SUPER_MAGIC);
}

/* ---- removal ---- */

static int remove_group(const char *path, const struct stat *status, int kind, struct FTW *where)
{
	(void)status;
	(void)where;
	/* rmdir(2) removes a cgroup with its files, but fails if the cgroup has processes. */
	if (kind == FTW_DP)
		(void)rmdir(path);
	return 0;
}

/* Removes the last name from a path, and returns the name. */
static const char *cut(char *path)
{
	char *slash = strrchr(path, '/');

	*slash = '\0';
	return slash + 1;
}

/*
 * Removes the cgroup of a user. On version 1, the jobs of a user share this cgroup:
 * <hierarchy>/slurm_<node>/uid_<user>. Lock the hierarchy first, as Slurm does when it creates or
 * removes this cgroup.
 */
static void remove_users_group(const char *user_group)
{
	path_text hierarchy;
	int fd;

	(void)snprintf(hierarchy, sizeof(hierarchy), "%s", user_group);
	if (strncmp(cut(hierarchy), "uid_", strlen("uid_")) != 0)
		return;
	(void)cut(hierarchy);
	fd = open(hierarchy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && flock(fd, LOCK_EX) == 0)
		(void)rmdir(user_group);
	close_fd(&fd);
}

/*
 * Retry: a slurmstepd that has reported its end to slurmd may stay in its cgroups for seconds on a
 * busy node.
 */
static void remove_jobs_group(char *group)
{
	for (int i = 0; i < TRIES && access(group, F_OK) == 0; i++) {
		if (i > 0)
			(void)usleep(PAUSE);
		(void)nftw(group, remove_group, LEVELS, FTW_DEPTH | FTW_PHYS);
	}
	(void)cut(group);
	remove_users_group(group);
}

void remove_groups(uint32_t job_id)
{
	static const char *const prefixes[] = {
		CGROUPS "/system.slice/*_slurmstepd.scope/job_",
		OF_PIDS,
		DAEMONS_V2,
		DAEMONS_V1,
		CGROUPS "/*/slurm_*/uid_*/job_",
	};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		path_text pattern;
		glob_t found;

		(void)snprintf(pattern, sizeof(pattern), "%s%" PRIu32, prefixes[i], job_id);
		if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
			continue;
		for (size_t j = 0; j < found.gl_pathc; j++)
			remove_jobs_group(found.gl_pathv[j]);
		globfree(&found);
	}
}

/*
 * Library that slurmd and slurmstepd load with LD_PRELOAD. It restricts what they do as root for
 * users.
 *
 * When a user's program ends, libpmix 5.0.2 and later removes every path that the program has
 * registered (PMIX_REGISTER_CLEANUP). It runs in slurmstepd, which would remove these paths as root
 * on the node. So this library disables the removal. Files in the job's /tmp are removed with the
 * job.
 *
 * For sbcast, slurmd opens the target file as the user, but then writes it as root, and finally
 * makes the user its owner. While slurmd writes, it holds a lock that the end of every job needs.
 * So a FIFO as the target would block the whole node. The user could also become the owner of a
 * device or of another user's file. So this library lets slurmd open only regular files that the
 * user owns.
 *
 * slurmstepd has write access to cgroups. It also opens the files of a job's standard streams, and
 * does so as root for jobs of root. A job of root could name a file of a cgroup as its output. So
 * this library refuses to open files of cgroups with O_CREAT.
 *
 * While a step runs, PMIx's plugin has a TCP port open. slurmstepd trusts every sender on this
 * port, and uses numbers in messages as indexes into its memory. Tasks inherit the port. Steps do
 * not need the port (mpi.conf), so this library does not open it.
 *
 * For steps with --container, slurmstepd creates directories as root below ContainerPath
 * (oci.conf), and later removes the directories with their contents. So users must not own
 * ContainerPath. However, each task also writes files there as the user. So this library moves the
 * files of tasks to the job's /tmp. Other files stay in ContainerPath, because slurmd must find
 * them.
 *
 * All nodes get the same configuration, but hosts differ in how they can confine jobs, and in their
 * GPUs. agents/node.py writes additional lines for this node. This library appends these lines to
 * slurm.conf and cgroup.conf, where the last value of a key wins. For gres.conf, it uses these
 * lines instead of the common file.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Folder with this node's own configuration. agents/node.py writes it, as FOLDER. */
#define OVERRIDES "/run/slurmstack/node"
#define GRES "/gres.conf"
/* Beginning of ContainerPath in oci.conf. The job's id follows. */
#define OF_BUNDLES "/var/spool/slurmd/bundles/"
/* Replaces OF_BUNDLES for files of tasks. Must be the same as BUNDLES in spank/containers/plugin.c. */
#define OF_TASKS "/tmp/.oci-"

typedef int open_function(const char *path, int flags, ...);
typedef FILE *fopen_function(const char *path, const char *mode);

/* spank/job_container.c sets this in the process that opens a file for a user. */
bool slurmstack_opens_for_user = false;

/* Keeps this library out of the programs that slurmstepd runs in the jail. */
__attribute__((constructor)) static void end_with_slurmstepd(void)
{
	if (strcmp(program_invocation_short_name, "slurmstepd") == 0)
		unsetenv("LD_PRELOAD");
}

/* Create this directory now: slurmstepd would create it later and make the user its owner. */
__attribute__((constructor)) static void make_bundles(void)
{
	(void)syscall(SYS_mkdirat, AT_FDCWD, OF_BUNDLES, 0755);
}

void pmix_execute_epilog(void *epilog)
{
	(void)epilog;
}

/*
 * In slurmstepd, only PMIx's plugin calls this function of Slurm. The descriptor that this function
 * sets never becomes readable.
 */
int slurm_net_stream_listen(int *fd, uint16_t *port)
{
	*fd = eventfd(0, EFD_CLOEXEC);
	*port = 0;
	return *fd < 0 ? -1 : 1;
}

/* ---- files of tasks with --container ---- */

/*
 * Returns the path to use: for a file of a task, its path in the job's /tmp, which this function
 * writes to `moved`; otherwise `path`.
 */
static const char *move(const char *path, char moved[PATH_MAX])
{
	const size_t length = strlen(OF_BUNDLES);

	if (strncmp(path, OF_BUNDLES, length) != 0 || !isdigit((unsigned char)path[length]))
		return path;
	(void)snprintf(moved, PATH_MAX, "%s%s", OF_TASKS, path + length);
	return moved;
}

int mkdir(const char *path, mode_t mode)
{
	int (*make)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
	char moved[PATH_MAX];

	return make(move(path, moved), mode);
}

int chmod(const char *path, mode_t mode)
{
	int (*change)(const char *, mode_t) =
		(int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "chmod");
	char moved[PATH_MAX];

	return change(move(path, moved), mode);
}

int chown(const char *path, uid_t uid, gid_t gid)
{
	int (*change)(const char *, uid_t, gid_t) =
		(int (*)(const char *, uid_t, gid_t))dlsym(RTLD_NEXT, "chown");
	char moved[PATH_MAX];

	return change(move(path, moved), uid, gid);
}

/* ---- opening files ---- */

static int open_own_file(open_function *open_it, const char *path, int flags, mode_t mode)
{
	struct stat status;
	/* With O_NONBLOCK, opening a FIFO does not wait for a reader. */
	int fd = open_it(path, flags | O_NONBLOCK, mode);

	if (fd < 0)
		return -1;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid())
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

static bool is_of_cgroup(int fd)
{
	struct statfs status;

	return fstatfs(fd, &status) == 0 && (status.f_type == CGROUP_SUPER_MAGIC ||
					     status.f_type == CGROUP2_SUPER_MAGIC);
}

/* Refuses files of cgroups. Slurm itself never opens them with O_CREAT. */
static int open_no_cgroup(open_function *open_it, const char *path, int flags, mode_t mode)
{
	int fd = open_it(path, flags, mode);

	if (fd < 0 || !is_of_cgroup(fd))
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

static int open_by(const char *name, const char *path, int flags, mode_t mode)
{
	open_function *open_it = (open_function *)dlsym(RTLD_NEXT, name);
	char moved[PATH_MAX];

	path = move(path, moved);
	if (!(flags & O_CREAT))
		return open_it(path, flags, mode);
	if (slurmstack_opens_for_user)
		return open_own_file(open_it, path, flags, mode);
	return open_no_cgroup(open_it, path, flags, mode);
}

/*
 * Defines a function that replaces an open function of libc. Passes a mode if open(2) requires it.
 */
#define OPEN_AS(name)                                                         \
	int name(const char *path, int flags, ...)                            \
	{                                                                     \
		mode_t mode = 0;                                              \
		va_list rest;                                                 \
                                                                              \
		if (flags & (O_CREAT | __O_TMPFILE)) {                        \
			va_start(rest, flags);                                \
			mode = va_arg(rest, mode_t);                          \
			va_end(rest);                                         \
		}                                                             \
		return open_by(#name, path, flags, mode);                     \
	}

OPEN_AS(open)
OPEN_AS(open64)

/* ---- this node's own configuration ---- */

static bool add(FILE *from, FILE *to)
{
	char block[BUFSIZ];
	size_t n;

	while ((n = fread(block, 1, sizeof(block), from)) > 0)
		if (fwrite(block, 1, n, to) < n)
			return false;
	return !ferror(from);
}

/*
 * Returns one file with the contents of `first` and `second`. Returns NULL with errno on failure.
 * Closes both files.
 */
static FILE *join(FILE *first, FILE *second)
{
	int fd = memfd_create("configuration", MFD_CLOEXEC);
	FILE *both = fd < 0 ? NULL : fdopen(fd, "r+");
	bool joined = both != NULL && add(first, both) && add(second, both) &&
		      fseek(both, 0, SEEK_SET) == 0;

	(void)fclose(first);
	(void)fclose(second);
	if (joined)
		return both;
	if (both != NULL)
		(void)fclose(both);
	errno = EIO;
	return NULL;
}

static bool is_configuration(const char *file)
{
	static const char *const files[] = {"/slurm.conf", "/cgroup.conf", GRES};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (strcmp(file, files[i]) == 0)
			return true;
	return false;
}

static FILE *fopen_by(const char *name, const char *path, const char *mode)
{
	fopen_function *fopen_it = (fopen_function *)dlsym(RTLD_NEXT, name);
	const char *file = strrchr(path, '/');
	char own[PATH_MAX];
	FILE *found = fopen_it(path, mode), *overrides;

	if (found == NULL || file == NULL || mode[0] != 'r' || !is_configuration(file))
		return found;
	(void)snprintf(own, sizeof(own), "%s%s", OVERRIDES, file);
	overrides = fopen_it(own, mode);
	if (overrides == NULL)
		return found;
	if (strcmp(file, GRES) != 0)
		return join(found, overrides);
	(void)fclose(found);
	return overrides;
}

FILE *fopen(const char *path, const char *mode)
{
	return fopen_by("fopen", path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	return fopen_by("fopen64", path, mode);
}

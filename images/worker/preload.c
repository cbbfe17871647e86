/*
 * Loaded before slurmd and slurmstepd, so that as root they do less for users.
 *
 * When a user's program ends, libpmix 5.0.2 and later removes every path that the program has
 * registered (PMIX_REGISTER_CLEANUP). It does so with its own rights: in slurmstepd it is root, on the
 * node. This library removes nothing. What a job leaves in its /tmp goes with the job.
 *
 * slurmd opens the file that sbcast sends as the user. But it writes the file as root, holds a lock
 * that the end of every job needs, and gives the file to the user at the end. A FIFO would hold up
 * the whole node, and a device or another user's file would become the user's. So only regular files
 * that the user owns are opened.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int open_function(const char *path, int flags, ...);

/* Set by spank/job_container.c, in the process that opens a file for a user. */
bool slurmstack_opens_for_user = false;

/* What slurmstepd runs in the jail has no use for this library. */
__attribute__((constructor)) static void end_with_slurmstepd(void)
{
	if (strcmp(program_invocation_short_name, "slurmstepd") == 0)
		unsetenv("LD_PRELOAD");
}

void pmix_execute_epilog(void *epilog)
{
	(void)epilog;
}

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

static int open_by(const char *name, const char *path, int flags, mode_t mode)
{
	open_function *open_it = (open_function *)dlsym(RTLD_NEXT, name);

	if (slurmstack_opens_for_user && (flags & O_CREAT))
		return open_own_file(open_it, path, flags, mode);
	return open_it(path, flags, mode);
}

/* With a mode where open(2) takes one. */
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

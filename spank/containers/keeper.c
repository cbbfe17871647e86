#include "keeper.h"

#include "fail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int open_keepers(int container_fd)
{
	int fd;

	if (mkdirat(container_fd, "keepers", 0700) < 0 && errno != EEXIST)
		fail("cannot make the directory keepers of the container: %s: "
		     "check the free space of /tmp in the job", strerror(errno));
	fd = openat(container_fd, "keepers", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		fail("cannot open the directory keepers of the container: %s: "
		     "start the job again", strerror(errno));
	return fd;
}

/*
 * Returns the pid in a keeper's file. If the file is not locked, its keeper has ended: removes the
 * file and returns 0.
 */
static pid_t holder(int keepers_fd, const char *name)
{
	char number[16] = "";
	pid_t pid = 0;
	int fd = openat(keepers_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_SH | LOCK_NB) == 0)
		(void)unlinkat(keepers_fd, name, 0);
	else if (read(fd, number, sizeof(number) - 1) > 0)
		pid = (pid_t)strtol(number, NULL, 10);
	(void)close(fd);
	return pid > 0 ? pid : 0;
}

pid_t find_keeper(int keepers_fd)
{
	int fd = openat(keepers_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	pid_t pid = 0;

	if (stream == NULL)
		fail("cannot list the directory keepers of the container: %s: "
		     "start the job again", strerror(errno));
	while (pid == 0 && (entry = readdir(stream)) != NULL)
		if (entry->d_name[0] != '.')
			pid = holder(keepers_fd, entry->d_name);
	(void)closedir(stream);
	return pid;
}

int record_keeper(int keepers_fd, const char *name)
{
	int fd = openat(keepers_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);

	/* Keep the file open: the kernel releases the lock when this process ends. */
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || dprintf(fd, "%d", (int)getpid()) < 0)
		fail("cannot record the process that keeps the container's namespaces: %s: "
		     "check the free space of /tmp in the job", strerror(errno));
	return fd;
}

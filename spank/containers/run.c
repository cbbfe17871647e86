#include "run.h"

#include "fail.h"
#include "root.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

/* Maximum bytes of a file or output. Lists of variables or users are far smaller. */
#define MAX_TEXT ((size_t)64 << 20)

char *read_all(int fd, size_t *length)
{
	size_t room = 4096, n_read = 0;
	char *text = malloc(room);

	while (text != NULL) {
		ssize_t n = read(fd, text + n_read, room - 1 - n_read);
		char *longer;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			if (n == 0)
				break;
			free(text);
			return NULL;
		}
		n_read += (size_t)n;
		if (n_read < room - 1)
			continue;
		if (room >= MAX_TEXT) {
			free(text);
			errno = EFBIG;
			return NULL;
		}
		room *= 2;
		longer = realloc(text, room);
		if (longer == NULL)
			free(text);
		text = longer;
	}
	if (text == NULL)
		return NULL;
	text[n_read] = '\0';
	if (length != NULL)
		*length = n_read;
	return text;
}

char *read_text(int directory_fd, const char *name, size_t *length)
{
	int fd = open_below(directory_fd, name, O_RDONLY | O_NONBLOCK);
	char *text;

	if (fd < 0)
		return NULL;
	text = read_all(fd, length);
	(void)close(fd);
	return text;
}

int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			fail("cannot wait for a process: %s", strerror(errno));
	return status;
}

void lock_file(int fd, const char *what)
{
	while (flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			fail("cannot lock %s: %s", what, strerror(errno));
}

char *output_of(const char *const argv[])
{
	int status, output[2];
	size_t length;
	char *text;
	pid_t pid;

	if (pipe2(output, O_CLOEXEC) < 0)
		fail("cannot make a pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		fail("cannot run %s: %s", argv[0], strerror(errno));
	if (pid == 0) {
		if (dup2(output[1], STDOUT_FILENO) >= 0)
			(void)execvp(argv[0], (char *const *)argv);
		fail("cannot run %s: %s", argv[0], strerror(errno));
	}
	(void)close(output[1]);
	text = read_all(output[0], &length);
	(void)close(output[0]);
	status = wait_for(pid);
	/* Print an error here, because a killed program prints none. */
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		tell("%s was killed: the job probably exceeded its memory limit: request more "
		     "memory with --mem", argv[0]);
	if (text == NULL || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		free(text);
		return NULL;
	}
	if (length > 0 && text[length - 1] == '\n')
		text[length - 1] = '\0';
	return text;
}

#include "report.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#include <slurm/spank.h>
#pragma GCC visibility pop

char refusal[2 * PATH_MAX + 256] = "";
bool refuse_silently = false;

/* Environment variable that slurmstepd inherits from slurmd. */
#define SLURMD "SLURMSTACK_SLURMD"
static int log_fd = -1;

void name_slurmd(pid_t pid)
{
	char number[16];

	(void)snprintf(number, sizeof(number), "%d", (int)pid);
	if (setenv(SLURMD, number, 1) < 0)
		slurm_error("chroot: out of memory: slurmd's log will not contain errors of slurmstepd");
}

void open_log_of_slurmd(void)
{
	char path[64];
	const char *number = getenv(SLURMD);

	if (number == NULL)
		return;
	(void)snprintf(path, sizeof(path), "/proc/%.16s/fd/2", number);
	log_fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
}

void close_log_of_slurmd(void)
{
	close_fd(&log_fd);
}

int refuse(const char *format, ...)
{
	char line[sizeof(refusal)];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(line, sizeof(line), format, args);
	va_end(args);

	if (refusal[0] == '\0')
		memcpy(refusal, line, sizeof(refusal));
	if (!refuse_silently) {
		slurm_error("chroot: %s", line);
		if (log_fd >= 0)
			(void)dprintf(log_fd, "slurmstepd: error: chroot: %s\n", line);
	}
	return REFUSED;
}

void close_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

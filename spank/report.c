#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#include <slurm/spank.h>
#pragma GCC visibility pop

char refusal[2 * PATH_MAX + 256] = "";
bool refuse_silently = false;

int refuse(const char *format, ...)
{
	char line[sizeof(refusal)];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(line, sizeof(line), format, args);
	va_end(args);

	if (refusal[0] == '\0')
		memcpy(refusal, line, sizeof(refusal));
	if (!refuse_silently)
		slurm_error("chroot: %s", line);
	return REFUSED;
}

void close_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

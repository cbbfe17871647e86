#include "report.h"

#include <stdarg.h>
#include <stdio.h>

#pragma GCC visibility push(default)
#include <slurm/spank.h>
#pragma GCC visibility pop

int refuse(const char *format, ...)
{
	char line[4096];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	slurm_error("container: %s", line);
	return REFUSED;
}

#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void print_line(const char *format, va_list args)
{
	char line[4096];

	(void)vsnprintf(line, sizeof(line), format, args);
	/* A single write(2), so that lines of two nodes do not mix. */
	(void)dprintf(2, "container: %s\n", line);
}

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_line(format, args);
	va_end(args);
	_Exit(CANNOT_START);
}

void tell(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_line(format, args);
	va_end(args);
}

char *format_text(const char *format, ...)
{
	char *text;
	va_list args;
	int length;

	va_start(args, format);
	length = vasprintf(&text, format, args);
	va_end(args);
	if (length < 0)
		fail("out of memory");
	return text;
}

/* Messages of start-container on the job's standard error. */
#ifndef SLURMSTACK_FAIL_H
#define SLURMSTACK_FAIL_H

#include <stddef.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* Exit status of shells for a program that exists but cannot run. */
#define CANNOT_START 126

/* Prints the reason after "container: ", and exits with CANNOT_START. */
__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *format, ...);

/* Prints a line after "container: ". */
__attribute__((format(printf, 1, 2))) void tell(const char *format, ...);

/* Like asprintf(3), but exits if memory is exhausted. */
__attribute__((format(printf, 1, 2))) char *format_text(const char *format, ...);

#endif

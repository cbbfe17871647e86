/* Reports errors of the plugin, to Slurm and to the container's log. */
#ifndef SLURMSTACK_REPORT_H
#define SLURMSTACK_REPORT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ACCEPTED 0
/* Slurm treats a positive code as success. */
#define REFUSED (-1)

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* The first error, without the plugin's name. The size suffices for two paths and text. */
extern char refusal[2 * PATH_MAX + 256];
/* True in a process that must not log, because it sends `refusal` to another process. */
extern bool refuse_silently;

/*
 * With these functions, slurmstepd writes the plugin's errors also to the container's log.
 * slurmstepd itself logs to SlurmdLogFile or to syslog, which a container does not have. The
 * container's log is slurmd's standard error. So slurmd records its pid at its start (name_slurmd).
 * slurmstepd opens slurmd's standard error while it sees the node's /proc (open_log_of_slurmd). A
 * missing log is not an error.
 */
void name_slurmd(pid_t pid);
void open_log_of_slurmd(void);
void close_log_of_slurmd(void);

/* Logs an error, keeps the first error in `refusal`, and returns REFUSED. */
__attribute__((format(printf, 1, 2))) int refuse(const char *format, ...);

void close_fd(int *fd);

#endif

/* Why the plugin refuses, in Slurm's log and for who is told later. */
#ifndef SLURMSTACK_REPORT_H
#define SLURMSTACK_REPORT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ACCEPTED 0
/* Slurm takes a positive code for success. */
#define REFUSED (-1)

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* The first thing that went wrong, without the plugin's name: at most two paths and words. */
extern char refusal[2 * PATH_MAX + 256];
/* True in a process that must not log: another one is going to, with its `refusal`. */
extern bool refuse_silently;

/*
 * slurmd's standard error, where the log of a container is. slurmstepd has none of its own: its log
 * goes to SlurmdLogFile or to syslog, of which a container has neither. slurmd says which process it
 * is when it starts, and slurmstepd opens it while it sees the node's /proc. No file is no error.
 */
void name_slurmd(pid_t pid);
void open_log_of_slurmd(void);
void close_log_of_slurmd(void);

/* Logs why the plugin refuses, keeps the first reason, and returns the code for Slurm. */
__attribute__((format(printf, 1, 2))) int refuse(const char *format, ...);

void close_fd(int *fd);

#endif

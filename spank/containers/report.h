/* Errors of the plugin. Slurm shows them to the user. */
#ifndef SLURMSTACK_CONTAINER_REPORT_H
#define SLURMSTACK_CONTAINER_REPORT_H

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

#define ACCEPTED 0
/* Slurm treats a positive code as success. */
#define REFUSED (-1)

/* Logs the reason and returns REFUSED. */
__attribute__((format(printf, 1, 2))) int refuse(const char *format, ...);

#endif

/* Lists of variables in the format of /proc/<pid>/environ. */
#ifndef SLURMSTACK_CONTAINER_ENVIRONMENT_H
#define SLURMSTACK_CONTAINER_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether the list `names` contains `name`, which has `length` bytes. Commas separate the names, as
 * in --container-env.
 */
bool is_named(const char *names, const char *name, size_t length);

/*
 * Sets the variables of a list in this process. Skips variables whose names are in `kept`, and
 * variables that Slurm and PMIx have set for this task.
 */
void set_variables(const char *list, size_t length, const char *kept);

#endif

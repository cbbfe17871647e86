/* Lists of variables in the format of /proc/<pid>/environ. */
#ifndef SLURMSTACK_CONTAINER_ENVIRONMENT_H
#define SLURMSTACK_CONTAINER_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether the comma-separated list `names`, such as --container-env, contains `name` of `length`
 * bytes.
 */
bool is_named(const char *names, const char *name, size_t length);

/* Sets the variables of a list in this process's environment, except those in `kept`. */
void set_variables(const char *list, size_t length, const char *kept);

#endif

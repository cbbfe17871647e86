/* Enters a container and runs the command of a task. */
#ifndef SLURMSTACK_CONTAINER_ENTER_H
#define SLURMSTACK_CONTAINER_ENTER_H

#include "tasks.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct entry {
	/* A process in the container, and the CLONE_* flags of the namespaces to enter. */
	pid_t keeper;
	int kinds;
	const char *directory;
	/* Variables of the container; `length` is in bytes. */
	const char *variables;
	size_t length;
	/* Names of job variables that override those of the container; NULL if there are none. */
	const char *kept_variables;
	/* Directory of Slurm's commands for containers; NULL if containers do not get them. */
	const char *clients;
	bool as_root;
	/* Counts the tasks that have entered; NULL if the keeper must outlive the tasks. */
	const struct tasks *entered;
};

/* Replaces this process by the command. If `entered` is set, the last task ends the keeper. */
__attribute__((noreturn)) void enter(const struct entry *entry, char *const command[]);

#endif

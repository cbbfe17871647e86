/* Counts what the tasks of a step have done on this node. */
#ifndef SLURMSTACK_CONTAINER_TASKS_H
#define SLURMSTACK_CONTAINER_TASKS_H

#include <stdbool.h>

struct tasks {
	/* Open for appending; gets a byte for each task. */
	int fd;
	/* Number of tasks of the step on this node. */
	long n;
};

/* Adds this task. Returns whether it is the last one. */
bool is_last_task(const struct tasks *tasks);

#endif

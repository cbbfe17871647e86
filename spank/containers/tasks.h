/* Counts the tasks of a step on this node that have reached a certain point. */
#ifndef SLURMSTACK_CONTAINER_TASKS_H
#define SLURMSTACK_CONTAINER_TASKS_H

#include <stdbool.h>

struct tasks {
	/* File to which each task appends a byte. */
	int fd;
	/* Number of tasks of the step on this node. */
	long n;
};

/* Adds this task, and returns whether it is the last one. */
bool is_last_task(const struct tasks *tasks);

#endif

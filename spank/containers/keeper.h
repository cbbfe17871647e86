/*
 * A keeper is a process that keeps the namespaces of a container alive, and locks its own file.
 * Each step in a container has its own keeper. Slurm ends all processes of a step, including its
 * keeper, when the step ends, but other steps may still use the container.
 */
#ifndef SLURMSTACK_CONTAINER_KEEPER_H
#define SLURMSTACK_CONTAINER_KEEPER_H

#include <sys/types.h>

/* Opens the container's directory of keepers. */
int open_keepers(int container_fd);

/* Returns the pid of a keeper; 0 if the container does not run. */
pid_t find_keeper(int keepers_fd);

/* Makes this process a keeper with its own file `name`. Returns the descriptor of its lock. */
int record_keeper(int keepers_fd, const char *name);

#endif

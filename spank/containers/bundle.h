/* The command of a task with Slurm's --container, which plugin.c and slurmstepd write to files. */
#ifndef SLURMSTACK_CONTAINER_BUNDLE_H
#define SLURMSTACK_CONTAINER_BUNDLE_H

/*
 * Sets the variables of the task, and returns the arguments of start-container, with the bundle as
 * image. Reads them from files in `directory`, and removes the directory.
 */
char **take_bundle(const char *directory, const char *bundle, int *argc);

#endif

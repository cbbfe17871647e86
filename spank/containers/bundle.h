/* The command and variables of a task with Slurm's --container, from files. */
#ifndef SLURMSTACK_CONTAINER_BUNDLE_H
#define SLURMSTACK_CONTAINER_BUNDLE_H

/*
 * Sets the variables of the task, and returns the arguments of start-container, with the bundle as
 * image. slurmstepd and plugin.c have written the variables and the arguments to files in
 * `directory`. This function removes `directory`.
 */
char **take_bundle(const char *directory, const char *bundle, int *argc);

#endif

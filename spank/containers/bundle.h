/* Reads the command and the variables of a task from files, for steps with srun --container. */
#ifndef SLURMSTACK_CONTAINER_BUNDLE_H
#define SLURMSTACK_CONTAINER_BUNDLE_H

/*
 * Sets the variables of the task, and returns the arguments of start-container. The image is the
 * bundle. slurmstepd has written the variables to a file in `directory`, and plugin.c has written
 * the arguments to another file there. This function removes `directory`.
 */
char **take_bundle(const char *directory, const char *bundle, int *argc);

#endif

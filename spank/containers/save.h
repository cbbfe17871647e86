/* Runs the command of a task, and saves the container after the last task of the step. */
#ifndef SLURMSTACK_CONTAINER_SAVE_H
#define SLURMSTACK_CONTAINER_SAVE_H

#include "enter.h"
#include "tasks.h"

struct save {
	/* The file to write, and the program that writes it. */
	const char *target, *importer;
	/* Directory of the container. */
	const char *container;
	/* Number of tasks that have ended. */
	struct tasks ended;
};

/*
 * Exits with the command's status. Does not save if a signal ended the command, because the step
 * was then cancelled. Saves within the step, as the user, so that Slurm can end the saving.
 */
__attribute__((noreturn)) void run_and_save(const struct entry *entry, char *const command[],
					    const struct save *save);

#endif

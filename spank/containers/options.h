/* The options for containers, with the same names as in Pyxis. */
#ifndef SLURMSTACK_CONTAINER_OPTIONS_H
#define SLURMSTACK_CONTAINER_OPTIONS_H

#include <stdbool.h>

#pragma GCC visibility push(default)
#include <slurm/spank.h>
#pragma GCC visibility pop

enum text_option { IMAGE, MOUNTS, WORKDIR, NAME, SAVE, ENV, UNSHARE, N_TEXT_OPTIONS };
enum switch_option { MOUNT_HOME, REMAP_ROOT, ENTRYPOINT, ENTRYPOINT_LOG, WRITABLE,
		     N_SWITCH_OPTIONS };

/*
 * Where the value of an option comes from. VARIABLE: a variable PYXIS_CONTAINER_*. INHERITED: the
 * environment of the job, in which Slurm passes the options of sbatch on to srun.
 */
enum source { UNSET, VARIABLE, INHERITED, COMMAND_LINE };

struct container_options {
	/* NULL if an option was not set. */
	char *texts[N_TEXT_OPTIONS];
	/* 0 or 1; -1 if neither the option nor its opposite was set. */
	int switches[N_SWITCH_OPTIONS];
	/* Where the value comes from. */
	enum source text_sources[N_TEXT_OPTIONS], switch_sources[N_SWITCH_OPTIONS];
	/*
	 * Name of the variable that set the switch, without the prefix PYXIS_CONTAINER_; NULL if no
	 * variable set it.
	 */
	const char *switch_variables[N_SWITCH_OPTIONS];
	/* Whether Slurm passed both the option and its opposite to this process. */
	bool both[N_SWITCH_OPTIONS];
};

extern struct container_options given;

/* Registers the options with Slurm. Returns 0 or -1. */
int register_options(spank_t spank);

/*
 * Sets missing options from the variables PYXIS_CONTAINER_*, and decides between options and their
 * opposites. Returns 0 or -1.
 */
int take_environment(spank_t spank);

/* Whether the step runs in a container. */
bool wants_container(void);

/* Warns that the given options have no effect without an image. */
void warn_of_ignored(void);

#endif

/* The plugin's options: arguments in plugstack.conf, and lines of the file that node= names. */
#ifndef SLURMSTACK_OPTIONS_H
#define SLURMSTACK_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_LISTED 64
/* Maximum size in bytes of the file that node= names. */
#define MAX_NODE_FILE 16384

struct bind {
	const char *path;
	bool read_only;
};

struct list {
	const char *values[MAX_LISTED];
	size_t n;
};

/* The strings point into the argument vector, which Slurm keeps for the plugin, or into `lines`. */
struct config {
	const char *jail;
	const char *scratch;
	const char *shm;
	const char *node;
	/* SlurmdSpoolDir of slurm.conf. */
	const char *spool;
	struct bind binds[MAX_LISTED];
	size_t n_binds;
	struct list devices;
	struct list through;
	/* Bytes; 0 to use a directory of the node instead of a tmpfs. */
	uint64_t tmp_size;
	uint64_t var_tmp_size;
	uint64_t shm_size;
	/* Limit on a job's simultaneous processes and threads; 0 for no limit. */
	uint64_t processes;
	/* Limit on a job's simultaneous steps, including Slurm's own; 0 for no limit. */
	uint64_t steps;
	/* Limit on the simultaneous steps of all jobs on the node; 0 for no limit. */
	uint64_t node_steps;
	bool no_new_privs;
	bool private_dev;
	bool overlay;
	/* One bit for each option that was given. */
	uint32_t given;
	char lines[MAX_NODE_FILE + 1];
};

/* Returns ACCEPTED or REFUSED. */
int parse_options(struct config *config, int ac, char **av);

#endif

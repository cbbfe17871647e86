/* The plugin's options: arguments in plugstack.conf, and lines of the node's own file. */
#ifndef SLURMSTACK_OPTIONS_H
#define SLURMSTACK_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_LISTED 64
/* Bytes of the file that node= names, at most. */
#define MAX_NODE_FILE 16384

struct bind {
	const char *path;
	bool read_only;
};

struct list {
	const char *values[MAX_LISTED];
	size_t n;
};

/* The strings belong to the argument vector that Slurm keeps for the plugin, or to `lines`. */
struct config {
	const char *jail;
	const char *scratch;
	const char *shm;
	const char *node;
	/* slurmd's SlurmdSpoolDir. */
	const char *spool;
	struct bind binds[MAX_LISTED];
	size_t n_binds;
	struct list devices;
	struct list through;
	/* Bytes; 0 where a directory of the node is used instead of a tmpfs. */
	uint64_t tmp_size;
	uint64_t var_tmp_size;
	uint64_t shm_size;
	/* That a job may have at once, threads included; 0 for any number. */
	uint64_t processes;
	/* Limit of a job's steps at once, Slurm's own included; 0 for any number. */
	uint64_t steps;
	bool no_new_privs;
	bool private_dev;
	bool overlay;
	/* One bit for each option that was given. */
	uint32_t given;
	char lines[MAX_NODE_FILE + 1];
};

/* Returns ACCEPTED or REFUSED; a refusal names the option, what is expected and what to do. */
int parse_options(struct config *config, int ac, char **av);

#endif

/* Parser of --container-mounts, for start-container and, at submission, for the plugin. */
#ifndef SLURMSTACK_CONTAINER_MOUNTS_H
#define SLURMSTACK_CONTAINER_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_MOUNTS 256

enum mount_kind { BIND, TMPFS, UMOUNT };

struct wanted_mount {
	enum mount_kind kind;
	/* Path in the job, absolute or relative to the working directory; only for BIND. */
	char *source;
	/* Path in the container. */
	char *target;
	/* MOUNT_ATTR_*. */
	uint64_t attributes;
	bool recursive;
	/* Skip the mount if the source is missing. */
	bool optional;
	/* Parameters of tmpfs(5); NULL for the default. */
	char *size, *mode;
};

struct wanted_mounts {
	struct wanted_mount mounts[MAX_MOUNTS];
	size_t n;
};

/*
 * Adds the mounts of SRC:DST[:FLAGS][,SRC:DST[:FLAGS]...] to `wanted`. Returns NULL, or an error
 * message in static memory.
 */
const char *parse_mounts(struct wanted_mounts *wanted, const char *text);

void free_mounts(struct wanted_mounts *wanted);

#endif

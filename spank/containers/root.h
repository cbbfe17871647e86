/* The root of a container: an image, a writable layer, and paths of the job. */
#ifndef SLURMSTACK_CONTAINER_ROOT_H
#define SLURMSTACK_CONTAINER_ROOT_H

#include "mounts.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MAX_SHOWN 64

/* A path of the job that is mounted in the container at `target`. */
struct shown {
	const char *path, *target;
	bool read_only;
	/* Skip the path if it does not exist in the job. */
	bool optional;
	/* Skip the path if it already exists in the image. */
	bool if_missing;
};

struct root {
	/* Directory with the image's files. */
	const char *image;
	/* Directory of this container, for `upper`, `work` and `root`. */
	const char *container;
	struct shown shown[MAX_SHOWN];
	size_t n_shown;
	const struct wanted_mounts *wanted;
};

/* Adds a path to mount in the container. If `shown.target` is NULL, the target is the same path. */
void show(struct root *root, struct shown shown);

/*
 * Creates a user namespace, a mount namespace, and the namespaces of the CLONE_* flags in `kinds`.
 * The user namespace maps this process's user and group to `uid` and `gid`.
 */
void make_namespaces(uid_t uid, gid_t gid, int kinds);

/*
 * Mounts the root and moves this process into `directory` in it. Creates the directory if the image
 * lacks it. Requires the namespaces of make_namespaces.
 */
void enter_root(const struct root *root, const char *directory);

/* Makes the root read-only, but no other mount. Call this function after enter_root. */
void make_root_read_only(void);

/*
 * Mounts an empty directory over `path`, if `path` exists. A container cannot unmount `path`
 * instead, because the mounts below /dev belong to the job. Call this function after enter_root.
 */
void hide_directory(const char *path);

/*
 * Opens a path below `root_fd`, and resolves symbolic links as if `root_fd` were the root. Returns
 * a descriptor, or -1 with errno.
 */
int open_below(int root_fd, const char *path, int flags);

#endif

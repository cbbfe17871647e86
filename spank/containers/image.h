/* Images in a user's cache, which agents/containers/cache.py writes. */
#ifndef SLURMSTACK_CONTAINER_IMAGE_H
#define SLURMSTACK_CONTAINER_IMAGE_H

#include <stdbool.h>

struct image {
	/* The image's directory in the cache, and the directory with its files. */
	int fd, root_fd;
	/* A shared lock, which prevents the cache from removing the image. */
	int lock_fd;
};

/*
 * Opens the image of a reference. Runs `importer` unless the cache has a fresh record of the
 * reference. Sets *path to the image's directory; the caller frees it.
 */
struct image find_image(const char *cache, const char *importer, const char *reference, char **path);

/* Opens an image in the cache. Returns false if the image was removed. */
bool open_image(const char *path, struct image *image);

#endif

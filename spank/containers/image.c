#include "image.h"

#include "fail.h"
#include "run.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* ---- references ---- */

/* Returns a reference encoded as a file name; NULL if the name is too long. */
static char *file_name_of(const char *reference)
{
	char *name = malloc(3 * strlen(reference) + 1), *end = name;

	if (name == NULL)
		fail("out of memory");
	for (const char *c = reference; *c != '\0'; c++) {
		if (isalnum((unsigned char)*c) || strchr("-._", *c) != NULL)
			*end++ = *c;
		else
			end += sprintf(end, "%%%02X", (unsigned char)*c);
	}
	*end = '\0';
	if (strlen(name) <= NAME_MAX)
		return name;
	free(name);
	return NULL;
}

/* Whether only this user can change the file or directory. */
static bool is_private(const struct stat *status)
{
	return status->st_uid == geteuid() && (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/*
 * Opens a directory that only this user can change. Returns -1 for other directories: another user
 * may have prepared images in a cache whose parent directory all users can write to. A link to the
 * directory must also belong to this user.
 */
static int open_private(int parent_fd, const char *path)
{
	struct stat status;
	int fd;

	if (fstatat(parent_fd, path, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
	    status.st_uid != geteuid())
		return -1;
	fd = openat(parent_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && (fstat(fd, &status) < 0 || !is_private(&status))) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

/* Whether a record is fresh: its mtime is the time at which it expires. */
static bool is_fresh(int fd, const char *name)
{
	struct stat status;

	return fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && is_private(&status) &&
	       status.st_mtime > time(NULL);
}

/* Returns the digest in a fresh record of the reference; NULL if there is no fresh record. */
static char *read_record(int cache_fd, const char *reference)
{
	char *name = file_name_of(reference), *digest = NULL;
	int fd = open_private(cache_fd, "references");

	if (fd >= 0 && name != NULL && is_fresh(fd, name))
		digest = read_text(fd, name, NULL);
	if (fd >= 0)
		(void)close(fd);
	free(name);
	return digest;
}

static bool has_private_image(int cache_fd, const char *digest)
{
	int images_fd = open_private(cache_fd, "images");
	int fd = images_fd < 0 ? -1 : open_private(images_fd, digest);

	if (images_fd >= 0)
		(void)close(images_fd);
	if (fd >= 0)
		(void)close(fd);
	return fd >= 0;
}

/*
 * Returns the image's directory. Returns NULL if the cache has no fresh record of the reference, or
 * if other users can change the cache. The importer then reports the reason.
 */
static char *find_recorded(const char *cache, const char *reference)
{
	int fd = open_private(AT_FDCWD, cache);
	char *digest = fd < 0 ? NULL : read_record(fd, reference), *path = NULL;

	if (digest != NULL && has_private_image(fd, digest))
		path = format_text("%s/images/%s", cache, digest);
	if (fd >= 0)
		(void)close(fd);
	free(digest);
	return path;
}

/* ---- metrics ---- */

/* Reports a start from a cached image to agents/containers/listener.py, if this listener runs. */
static void report_hit(void)
{
	static const char word[] = "hit", name[] = "\0slurmstack-images";
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t length = offsetof(struct sockaddr_un, sun_path) + sizeof(name) - 1;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return;
	memcpy(address.sun_path, name, sizeof(name) - 1);
	(void)sendto(fd, word, sizeof(word) - 1, 0, (struct sockaddr *)&address, length);
	(void)close(fd);
}

/* ---- images ---- */

bool open_image(const char *path, struct image *image)
{
	*image = (struct image){-1, -1, -1};
	image->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (image->fd >= 0)
		image->lock_fd = openat(image->fd, "lock", O_RDONLY | O_CLOEXEC);
	/* The cache takes an exclusive lock before it removes an image. */
	if (image->lock_fd >= 0 && flock(image->lock_fd, LOCK_SH) == 0)
		image->root_fd = openat(image->fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (image->root_fd >= 0) {
		/* Record the time: the cache removes the least recently used images first. */
		(void)utimensat(image->fd, "lock", NULL, 0);
		return true;
	}
	if (image->lock_fd >= 0)
		(void)close(image->lock_fd);
	if (image->fd >= 0)
		(void)close(image->fd);
	return false;
}

static char *import(const char *importer, const char *reference)
{
	const char *const argv[] = {importer, "find", "--", reference, NULL};
	char *path = output_of(argv);

	/* The importer has printed an error. */
	if (path == NULL)
		_Exit(CANNOT_START);
	return path;
}

struct image find_image(const char *cache, const char *importer, const char *reference, char **path)
{
	struct image image;

	*path = find_recorded(cache, reference);
	if (*path != NULL && open_image(*path, &image)) {
		report_hit();
		return image;
	}
	free(*path);
	*path = import(importer, reference);
	if (!open_image(*path, &image))
		fail("%s: the image %s was removed from the cache: start the job again", reference,
		     *path);
	return image;
}

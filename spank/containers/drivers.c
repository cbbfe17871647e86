#include "drivers.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/*
 * Whether a directory contains files. Ignores broken links, because nodes without a driver have a
 * broken link libcuda.so.
 */
static bool has_files(const char *path)
{
	DIR *stream = opendir(path);
	struct dirent *entry;
	struct stat status;
	bool found = false;

	if (stream == NULL)
		return false;
	while (!found && (entry = readdir(stream)) != NULL)
		found = entry->d_name[0] != '.' &&
			fstatat(dirfd(stream), entry->d_name, &status, 0) == 0;
	(void)closedir(stream);
	return found;
}

/* Whether a variable of the image or the user refuses all devices of a kind. */
static bool refuses(const char *variable)
{
	const char *devices = getenv(variable);

	return devices != NULL && (strcmp(devices, "void") == 0 || strcmp(devices, "none") == 0);
}

static bool wants_drivers(void)
{
	return !refuses("NVIDIA_VISIBLE_DEVICES");
}

bool uses_libraries_of_driver(void)
{
	return has_files(DRIVERS "/lib") && wants_drivers();
}

bool uses_programs_of_driver(void)
{
	return has_files(DRIVERS "/bin") && wants_drivers();
}

bool refuses_infiniband(void)
{
	return refuses("MELLANOX_VISIBLE_DEVICES");
}

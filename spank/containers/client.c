/*
 * slurm-client: runs a command of Slurm in a container of any image.
 *
 * In containers, the names of Slurm's commands are links to this program. The /usr of the shared
 * root (the jail) is mounted in the container. This program starts the command there, with the
 * loader and the libraries of the shared root, because the image may have another C library.
 */
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>

#include <unistd.h>

#define SHARED_USR "/usr/lib/slurmstack/usr"
#define LIBRARIES SHARED_USR "/lib/x86_64-linux-gnu"
#define LOADER SHARED_USR "/lib64/ld-linux-x86-64.so.2"

int main(int argc, char **argv)
{
	const char *name = basename(argv[0]);
	char path[256];
	char **words = calloc((size_t)argc + 6, sizeof(*words));
	size_t n = 0;

	if (words == NULL)
		return 1;
	(void)snprintf(path, sizeof(path), SHARED_USR "/bin/%s", name);
	words[n++] = (char *)LOADER;
	words[n++] = (char *)"--library-path";
	words[n++] = (char *)LIBRARIES;
	words[n++] = (char *)"--argv0";
	words[n++] = argv[0];
	words[n++] = path;
	for (int i = 1; i < argc; i++)
		words[n++] = argv[i];
	(void)execv(LOADER, words);
	perror(LOADER);
	return 127;
}

#include "bundle.h"

#include "fail.h"
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads and removes a file, so that a later step with the same name does not find it. */
static char *take_file(int directory_fd, const char *name, size_t *length)
{
	char *text = read_text(directory_fd, name, length);

	if (text == NULL)
		fail("cannot read the file %s, which slurmstepd wrote for the task: %s: "
		     "contact the cluster operator", name, strerror(errno));
	(void)unlinkat(directory_fd, name, 0);
	return text;
}

/*
 * Replaces the variables of this process by those of the task. This is necessary because slurmstepd
 * runs the command RunTimeRun of oci.conf with slurmstepd's own variables.
 */
static void set_environment(char *list, size_t length)
{
	if (clearenv() != 0)
		fail("cannot clear the environment");
	for (char *variable = list; variable < list + length; variable += strlen(variable) + 1)
		/* putenv(3) keeps the pointer, so do not free `list`. */
		if (strchr(variable, '=') != NULL && putenv(variable) != 0)
			fail("out of memory");
}

char **take_bundle(const char *directory, const char *bundle, int *argc)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	size_t length;
	char *words, **argv;

	if (fd < 0)
		fail("cannot open the task's directory %s: %s: contact the cluster operator",
		     directory, strerror(errno));
	words = take_file(fd, "environment", &length);
	set_environment(words, length);
	words = take_file(fd, "command", &length);
	(void)close(fd);
	(void)rmdir(directory);
	argv = calloc(length + 2, sizeof(*argv));
	if (argv == NULL)
		fail("out of memory");
	argv[0] = words;
	argv[1] = format_text("--image=bundle:%s", bundle);
	*argc = 2;
	for (char *word = words + strlen(words) + 1; word < words + length; word += strlen(word) + 1)
		argv[(*argc)++] = word;
	return argv;
}

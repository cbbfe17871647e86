#include "tasks.h"

#include "fail.h"
#include "run.h"

#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

bool is_last_task(const struct tasks *tasks)
{
	struct stat status;
	bool last;

	lock_file(tasks->fd, "the file that counts the step's tasks");
	if (write(tasks->fd, "", 1) != 1 || fstat(tasks->fd, &status) < 0)
		fail("cannot count the tasks of the step: %s", strerror(errno));
	last = status.st_size == tasks->n;
	(void)flock(tasks->fd, LOCK_UN);
	return last;
}

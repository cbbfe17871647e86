#include "save.h"

#include "fail.h"
#include "run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Blocks all signals in this process, because Slurm sends signals to all processes of the step, but
 * only the command must handle them. Returns the old mask.
 */
static sigset_t ignore_signals(void)
{
	sigset_t all, old;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &old);
	return old;
}

static void save_container(const struct save *save, const sigset_t *mask)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("--container-save=%s: cannot start a process: %s", save->target,
		     strerror(errno));
	if (pid == 0) {
		(void)sigprocmask(SIG_SETMASK, mask, NULL);
		(void)execl(save->importer, save->importer, "save", "--container", save->container,
			    "--", save->target, (char *)NULL);
		fail("cannot run %s: %s", save->importer, strerror(errno));
	}
	/* The importer has printed an error. */
	if (wait_for(pid) != 0)
		_Exit(CANNOT_START);
}

/* Ends this process with the signal that ended the command, so that Slurm reports this signal. */
__attribute__((noreturn)) static void end_by(int number)
{
	sigset_t all;

	(void)signal(number, SIG_DFL);
	(void)raise(number);
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_UNBLOCK, &all, NULL);
	_Exit(128 + number);
}

void run_and_save(const struct entry *entry, char *const command[], const struct save *save)
{
	sigset_t mask = ignore_signals();
	pid_t pid = fork();
	int status;

	if (pid < 0)
		fail("cannot run %s: %s", command[0], strerror(errno));
	if (pid == 0) {
		(void)sigprocmask(SIG_SETMASK, &mask, NULL);
		enter(entry, command);
	}
	status = wait_for(pid);
	if (WIFSIGNALED(status))
		end_by(WTERMSIG(status));
	if (is_last_task(&save->ended))
		save_container(save, &mask);
	_Exit(WEXITSTATUS(status));
}

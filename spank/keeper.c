#include "keeper.h"

#include "cgroups.h"
#include "mounts.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * File in the job's directory, which the keeper locks. The holder of the lock is the keeper. The
 * file contains no pid, because another process may get the pid after the keeper has ended.
 */
#define LOCK_FILE "keeper"
/* How messages describe the keeper, because users do not know the word "keeper". */
#define KEEPS_JOB "the process that keeps the job's namespaces"
/* Milliseconds to wait until the processes of a job have ended. */
#define END_TIMEOUT 10000

/* ---- find the keeper ---- */

/* Sets *pid to the pid of the lock's holder, in this pid namespace; to 0 if there is no holder. */
static int lock_holder(int lock_fd, pid_t *pid)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	if (fcntl(lock_fd, F_GETLK, &lock) < 0)
		return refuse("cannot look up " KEEPS_JOB ": %s", strerror(errno));
	*pid = lock.l_type == F_UNLCK ? 0 : lock.l_pid;
	if (*pid < 0)
		return refuse(KEEPS_JOB " is not visible in this pid namespace");
	return ACCEPTED;
}

static int open_keeper(int lock_fd, int *keeper_fd)
{
	pid_t pid, again;

	for (;;) {
		if (lock_holder(lock_fd, &pid) < 0)
			return REFUSED;
		if (pid == 0)
			return ACCEPTED;
		*keeper_fd = (int)syscall(SYS_pidfd_open, pid, 0);
		if (*keeper_fd < 0 && errno != ESRCH)
			return refuse("cannot open " KEEPS_JOB ": %s", strerror(errno));
		if (*keeper_fd < 0)
			continue;
		/* Check again: another process may have got this pid before pidfd_open(2). */
		if (lock_holder(lock_fd, &again) < 0) {
			close_fd(keeper_fd);
			return REFUSED;
		}
		if (again == pid)
			return ACCEPTED;
		close_fd(keeper_fd);
	}
}

int find_keeper(int job_fd, int *keeper_fd)
{
	int rc, lock_fd;

	*keeper_fd = -1;
	lock_fd = openat(job_fd, LOCK_FILE, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
	if (lock_fd < 0 && errno == ENOENT)
		return ACCEPTED;
	if (lock_fd < 0)
		return refuse("cannot open the lock file " LOCK_FILE " of " KEEPS_JOB ": %s",
			      strerror(errno));
	rc = open_keeper(lock_fd, keeper_fd);
	close_fd(&lock_fd);
	return rc;
}

/* ---- run as the keeper ---- */

/* The only open files of the keeper. */
enum { LOCK = 0, REPORT = 1, PROC = 2, FIRST_OTHER = 3 };

/* Moves the keeper's files to these descriptors, and closes all others. */
static int keep_files(int lock_fd, int report_fd, int proc_fd)
{
	if (lock_fd < FIRST_OTHER || report_fd < FIRST_OTHER || proc_fd < FIRST_OTHER) {
		errno = EBADF;
		return -1;
	}
	if (dup2(lock_fd, LOCK) < 0 || dup2(report_fd, REPORT) < 0 || dup2(proc_fd, PROC) < 0)
		return -1;
	return close_range(FIRST_OTHER, ~0U, 0);
}

static int become_keeper(uid_t uid)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	sigset_t all;

	/*
	 * Block all signals, because slurmstepd's handlers must not run here. Ignore SIGCHLD, so that
	 * the kernel reaps children.
	 */
	(void)sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, NULL) < 0 || sigaction(SIGCHLD, &ignore, NULL) < 0)
		return refuse(KEEPS_JOB " cannot block its signals: %s", strerror(errno));
	if (setsid() < 0)
		return refuse(KEEPS_JOB " cannot start a session: %s", strerror(errno));
	/* Root in the job sees the keeper. So prevent access to the keeper's memory and files. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return refuse(KEEPS_JOB " cannot clear its dumpable flag: %s", strerror(errno));
	if (mount_proc(PROC, uid) < 0)
		return REFUSED;
	/* Take the lock last: as soon as the keeper holds it, other steps join its namespaces. */
	if (fcntl(LOCK, F_SETLK, &lock) < 0)
		return refuse(KEEPS_JOB " cannot lock its lock file: %s", strerror(errno));
	return ACCEPTED;
}

/*
 * Runs in a clone of slurmstepd. Only system calls are safe here: another thread of slurmstepd may
 * have held locks of malloc(3) or of the log at the time of the clone.
 */
__attribute__((noreturn)) static void keep(int lock_fd, int report_fd, int proc_fd, uid_t uid)
{
	int rc;

	refuse_silently = true;
	refusal[0] = '\0';
	if (keep_files(lock_fd, report_fd, proc_fd) < 0) {
		rc = refuse(KEEPS_JOB " cannot close files: %s", strerror(errno));
	} else {
		report_fd = REPORT;
		rc = become_keeper(uid);
	}
	/* The NUL marks the end of the report. */
	if (write(report_fd, refusal, strlen(refusal) + 1) < 0 || rc < 0)
		_exit(1);
	(void)close(REPORT);
	(void)close(PROC);
	for (;;)
		(void)pause();
}

/* ---- start the keeper ---- */

/* Waits for the keeper's report: an empty text if the keeper is ready, or the reason. */
static int hear_keeper(int report_fd)
{
	char reason[sizeof(refusal)];
	size_t length = 0;
	ssize_t n;

	do {
		n = read(report_fd, reason + length, sizeof(reason) - length);
		if (n > 0)
			length += (size_t)n;
	} while ((n > 0 && reason[length - 1] != '\0' && length < sizeof(reason)) ||
		 (n < 0 && errno == EINTR));
	if (n < 0)
		return refuse("cannot read the report of " KEEPS_JOB ": %s", strerror(errno));
	if (length == 0 || reason[length - 1] != '\0')
		return refuse(KEEPS_JOB " ended before it was ready");
	if (reason[0] != '\0')
		return refuse("%s", reason);
	return ACCEPTED;
}

int start_keeper(int job_fd, int proc_fd, int group_fd, uid_t uid, int *keeper_fd)
{
	int report[2] = {-1, -1};
	int lock_fd, rc = REFUSED;
	pid_t pid;

	*keeper_fd = -1;
	lock_fd = openat(job_fd, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lock_fd < 0)
		return refuse("cannot make the lock file " LOCK_FILE " of " KEEPS_JOB ": %s",
			      strerror(errno));
	if (pipe2(report, O_CLOEXEC) < 0) {
		(void)refuse("cannot make a pipe for " KEEPS_JOB ": %s", strerror(errno));
		goto out;
	}
	/* Do not use fork(3), which would also run handlers of pthread_atfork(3). */
	pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, 0);
	if (pid == 0)
		keep(lock_fd, report[1], proc_fd, uid);
	if (pid < 0) {
		(void)refuse("cannot start " KEEPS_JOB ": %s", strerror(errno));
		goto out;
	}
	close_fd(&report[1]);
	rc = group_fd < 0 ? ACCEPTED : join_group(group_fd, pid);
	if (rc == ACCEPTED)
		rc = hear_keeper(report[0]);
	if (rc == ACCEPTED) {
		*keeper_fd = (int)syscall(SYS_pidfd_open, pid, 0);
		if (*keeper_fd < 0)
			rc = refuse("cannot open " KEEPS_JOB ": %s", strerror(errno));
	}
	if (rc < 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
out:
	close_fd(&report[0]);
	close_fd(&report[1]);
	close_fd(&lock_fd);
	return rc;
}

/* ---- end the keeper ---- */

void end_keeper(int job_fd)
{
	struct pollfd ended = {.fd = -1, .events = POLLIN};
	int n;

	if (find_keeper(job_fd, &ended.fd) < 0 || ended.fd < 0)
		return;
	if (syscall(SYS_pidfd_send_signal, ended.fd, SIGKILL, NULL, 0) < 0 && errno != ESRCH) {
		(void)refuse("cannot end " KEEPS_JOB ": %s", strerror(errno));
	} else {
		n = poll(&ended, 1, END_TIMEOUT);
		if (n < 0)
			(void)refuse("cannot wait for " KEEPS_JOB ": %s", strerror(errno));
		else if (n == 0)
			(void)refuse("processes of the job still run %d s after SIGKILL: not waiting longer",
				     END_TIMEOUT / 1000);
	}
	close_fd(&ended.fd);
}

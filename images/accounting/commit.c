/*
 * Library for LD_PRELOAD: slurmdbd acknowledges a record only after the database has stored it.
 *
 * slurmdbd decides on success after the SQL statement, but commits later (proc_req() and
 * acct_storage_p_commit() of Slurm 24.11). If the commit fails, or the connection ends before the
 * commit, the transaction is lost, but the answer still reports success. slurmctld then deletes its
 * record, and sacct shows the job as running for ever. So this library restarts slurmdbd before it
 * answers, and slurmctld sends all unacknowledged records again. A repeated record does no harm,
 * because slurmdbd's statements insert or update.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/close_range.h>
#include <mysql.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The script that waits for the database and then runs slurmdbd. */
static const char START[] = "/usr/lib/slurmstack/slurmdbd";

static bool in_transaction(MYSQL *connection)
{
	unsigned int status = 0;

	mariadb_get_info(connection, MARIADB_CONNECTION_SERVER_STATUS, &status);
	return status & SERVER_STATUS_IN_TRANS;
}

/* Restarts slurmdbd. The new process has no connection, LD_PRELOAD or blocked signal. */
static void begin_again(MYSQL *connection)
{
	sigset_t none;

	dprintf(STDERR_FILENO,
		"error: the database did not commit a transaction (%s): restarting slurmdbd, so "
		"that slurmctld sends the records again\n",
		mysql_error(connection));
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	for (int number = 1; number < SIGRTMIN; number++)
		signal(number, SIG_DFL);
	close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
	unsetenv("LD_PRELOAD");
	execl(START, START, NULL);
	_exit(EXIT_FAILURE);
}

int mysql_ping(MYSQL *connection)
{
	int (*ping)(MYSQL *) = dlsym(RTLD_NEXT, "mysql_ping");
	bool open = in_transaction(connection);
	int failed = ping(connection);

	if (failed && open)
		begin_again(connection);
	return failed;
}

my_bool mysql_commit(MYSQL *connection)
{
	my_bool (*commit)(MYSQL *) = dlsym(RTLD_NEXT, "mysql_commit");
	my_bool failed = commit(connection);

	if (failed)
		begin_again(connection);
	return failed;
}

/*
 * Loaded before slurmdbd, so that it acknowledges nothing that the database has not kept.
 *
 * slurmdbd answers by what came of a statement, and commits after that. Where the commit fails, or
 * the connection is found dead before it, the transaction is lost and the answer is the same
 * (proc_req() and acct_storage_p_commit() of Slurm 24.11): slurmctld forgets the record, and a job
 * runs for ever in sacct. Whoever has said nothing is asked again; so slurmdbd begins anew here,
 * before it can answer, and slurmctld tells it once more all that it was not told to have arrived.
 * To tell slurmdbd a thing twice does no harm: its statements insert or update.
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

/* What waits for the database and then runs slurmdbd. */
static const char START[] = "/usr/lib/slurmstack/slurmdbd";

static bool in_transaction(MYSQL *connection)
{
	unsigned int status = 0;

	mariadb_get_info(connection, MARIADB_CONNECTION_SERVER_STATUS, &status);
	return status & SERVER_STATUS_IN_TRANS;
}

/* The same process, as when it was new: no connection, no preloaded library, no signal blocked. */
static void begin_again(MYSQL *connection)
{
	sigset_t none;

	dprintf(STDERR_FILENO,
		"error: the database has not kept a transaction (%s): slurmdbd begins again, "
		"and is told it once more\n",
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

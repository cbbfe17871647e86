/*
 * Library for LD_PRELOAD that restarts slurmdbd if it would otherwise lose records or stop working.
 *
 * - slurmdbd decides right after the SQL statement whether a request succeeded, but commits later
 *   (source: proc_req() and acct_storage_p_commit() of Slurm 24.11). If the commit fails, or the
 *   connection ends before the commit, the transaction is lost, but slurmdbd still reports success
 *   to slurmctld. slurmctld then deletes its record, and sacct shows the job as running for ever.
 *   So this library restarts slurmdbd before slurmdbd answers, and slurmctld sends the records
 *   again that slurmdbd has not acknowledged. A repeated record does no harm, because slurmdbd's
 *   statements insert a new row or update an existing one.
 * - If the connection to the database fails while slurmdbd starts, main() joins a thread that ends
 *   only at a shutdown, so slurmdbd waits for ever. If a query fails at this time, assoc_mgr_init()
 *   returns success, and slurmdbd works with an empty list, or crashes. So this library restarts
 *   slurmdbd.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/close_range.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The script that waits for the database and then runs slurmdbd. */
static const char START[] = "/usr/lib/slurmstack/slurmdbd";

/* True while this thread reads the lists that slurmdbd needs for its start. */
static __thread bool reading;

/* Returns the original function that this library's function of the same name replaces. */
static void *replaced(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (!function) {
		dprintf(STDERR_FILENO, "error: slurmdbd lacks the function %s: use the versions of Slurm "
			"and MariaDB that the image is made for\n", name);
		_exit(EXIT_FAILURE);
	}
	return function;
}

static bool in_transaction(MYSQL *connection)
{
	unsigned int status = 0;

	mariadb_get_info(connection, MARIADB_CONNECTION_SERVER_STATUS, &status);
	return status & SERVER_STATUS_IN_TRANS;
}

/*
 * Restarts slurmdbd. The new process has no open connection, no LD_PRELOAD and no blocked signal.
 */
static void begin_again(const char *problem, const char *reason, const char *consequence)
{
	sigset_t none;

	dprintf(STDERR_FILENO, "error: %s (%s): restarting slurmdbd%s\n", problem, reason,
		consequence);
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	for (int number = 1; number < SIGRTMIN; number++)
		signal(number, SIG_DFL);
	close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
	unsetenv("LD_PRELOAD");
	execl(START, START, NULL);
	_exit(EXIT_FAILURE);
}

static void send_again(MYSQL *connection)
{
	begin_again("the database did not commit a transaction", mysql_error(connection),
		    ", so that slurmctld sends the records again");
}

/*
 * Restarts slurmdbd after a pause of two seconds, because the cause of the failure, such as a
 * missing right, can persist. The script START reads PAUSE and waits.
 */
static void read_again(const char *reason)
{
	setenv("PAUSE", "2", 1);
	begin_again("the database failed while slurmdbd started", reason, "");
}

/*
 * Restarts slurmdbd after a query that failed during its start. Two errors need no restart: after a
 * deadlock, Slurm itself repeats the query, and Slurm treats a missing table as an empty table.
 * Source: _mysql_query_internal() of Slurm.
 */
static void check_read(MYSQL *connection)
{
	unsigned int error = mysql_errno(connection);

	if (error != ER_NO_SUCH_TABLE && error != ER_LOCK_DEADLOCK)
		read_again(mysql_error(connection));
}

int mysql_ping(MYSQL *connection)
{
	int (*ping)(MYSQL *) = replaced("mysql_ping");
	bool open = in_transaction(connection);
	int failed = ping(connection);

	if (failed && open)
		send_again(connection);
	return failed;
}

my_bool mysql_commit(MYSQL *connection)
{
	my_bool (*commit)(MYSQL *) = replaced("mysql_commit");
	my_bool failed = commit(connection);

	if (failed)
		send_again(connection);
	return failed;
}

/*
 * Whether the last query of this thread succeeded, and its result is not yet stored. Only then does
 * mysql_errno() report an error of this result, and not an earlier error.
 */
static __thread bool answered;

int mysql_query(MYSQL *connection, const char *statement)
{
	int (*query)(MYSQL *, const char *) = replaced("mysql_query");
	int failed = query(connection, statement);

	answered = !failed;
	if (failed && reading)
		check_read(connection);
	return failed;
}

MYSQL_RES *mysql_store_result(MYSQL *connection)
{
	MYSQL_RES *(*store)(MYSQL *) = replaced("mysql_store_result");
	MYSQL_RES *result = store(connection);

	/* A statement without rows has no result, and no error. */
	if (!result && reading && answered && mysql_errno(connection))
		check_read(connection);
	answered = false;
	return result;
}

int mysql_next_result(MYSQL *connection)
{
	int (*next)(MYSQL *) = replaced("mysql_next_result");
	int status = next(connection);

	answered = status == 0;
	if (status > 0 && reading)
		check_read(connection);
	return status;
}

/* A function of libslurm that slurmdbd's main() calls once. */
int assoc_mgr_init(void *connection, void *arguments, int connection_errno)
{
	int (*init)(void *, void *, int) = replaced("assoc_mgr_init");
	int failed;

	reading = true;
	failed = init(connection, arguments, connection_errno);
	if (failed)
		read_again(connection_errno ? "no connection" : "slurmdbd cannot read its tables");
	reading = false;
	return failed;
}

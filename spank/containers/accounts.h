/* The user and group databases of a container: the entries of the image, and the job's user. */
#ifndef SLURMSTACK_CONTAINER_ACCOUNTS_H
#define SLURMSTACK_CONTAINER_ACCOUNTS_H

#include <stdbool.h>

/* The job's user. */
struct account {
	/* Lines of passwd(5) and group(5). */
	char *user_line, *group_line;
	/* SlurmUser's line in passwd(5), which Slurm's commands require. NULL if there is no such line. */
	char *slurm_line;
	/* The home directory; "/" if the user has none. */
	char *home;
};

/* Looks up this process's user and group with getent(1), in the databases that the job sees. */
struct account find_account(void);

/*
 * Writes `passwd` and `group` into the container's directory. With `as_root`, the user is root in
 * the container.
 */
void write_accounts(int container_fd, int image_fd, const struct account *account, bool as_root);

#endif

#include "accounts.h"

#include "fail.h"
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIELD_OF_NUMBER 2
#define FIELD_OF_HOME 5

/* Returns field n (from 0) of a line of passwd(5) or group(5); the caller frees it. */
static char *field_of(const char *line, int n)
{
	for (; n > 0; n--) {
		line = strchr(line, ':');
		if (line == NULL)
			return format_text("%s", "");
		line++;
	}
	return format_text("%.*s", (int)strcspn(line, ":\n"), line);
}

static char *ask(const char *database, const char *key)
{
	const char *const argv[] = {"/usr/bin/getent", database, key, NULL};

	return output_of(argv);
}

struct account find_account(void)
{
	const unsigned int uid = geteuid(), gid = getegid();
	char *user = format_text("%u", uid), *group = format_text("%u", gid);
	struct account account = {
		.user_line = ask("passwd", user),
		.group_line = ask("group", group),
		.slurm_line = ask("passwd", "slurm"),
	};

	if (account.user_line == NULL)
		account.user_line = format_text("user:x:%u:%u::/:/bin/sh", uid, gid);
	if (account.group_line == NULL)
		account.group_line = format_text("group:x:%u:", gid);
	account.home = field_of(account.user_line, FIELD_OF_HOME);
	free(user);
	free(group);
	return account;
}

/* ---- the files ---- */

/* Whether two lines have the same name or the same number. */
static bool collide(const char *line, const char *other)
{
	bool same = false;

	for (int n = 0; n <= FIELD_OF_NUMBER; n += FIELD_OF_NUMBER) {
		char *field = field_of(line, n), *of_other = field_of(other, n);

		same = same || strcmp(field, of_other) == 0;
		free(field);
		free(of_other);
	}
	return same;
}

/*
 * Whether a line describes the user `_apt`. If this user exists, apt downloads as this user. With
 * --container-remap-root, this would fail, because setuid(2) has no effect (enter.c).
 */
static bool is_of_apt(const char *line)
{
	return strncmp(line, "_apt:", strlen("_apt:")) == 0;
}

/*
 * Writes the file `name` of the container. The file contains the lines of the image's file, the
 * line `slurms` unless it is NULL, and the line `ours`. Lines of the image with the same name or id
 * as one of these two lines are left out.
 */
static void write_database(int container_fd, int image_fd, const char *name, const char *ours,
			   const char *slurms)
{
	char *source = format_text("etc/%s", name), *text = read_text(image_fd, source, NULL);
	char *rest = text, *line;
	int fd = openat(container_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
			0644);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	if (file == NULL)
		fail("cannot write %s of the container: %s: "
		     "check the free space of /tmp in the job", name, strerror(errno));
	while ((line = strsep(&rest, "\n")) != NULL)
		if (line[0] != '\0' && !collide(line, ours) && !is_of_apt(line) &&
		    (slurms == NULL || !collide(line, slurms)))
			(void)fprintf(file, "%s\n", line);
	if (slurms != NULL)
		(void)fprintf(file, "%s\n", slurms);
	if (fprintf(file, "%s\n", ours) < 0 || fclose(file) != 0)
		fail("cannot write %s of the container: %s: "
		     "check the free space of /tmp in the job", name, strerror(errno));
	free(text);
	free(source);
}

void write_accounts(int container_fd, int image_fd, const struct account *account, bool as_root)
{
	write_database(container_fd, image_fd, "passwd",
		       as_root ? "root:x:0:0:root:/root:/bin/sh" : account->user_line,
		       account->slurm_line);
	write_database(container_fd, image_fd, "group",
		       as_root ? "root:x:0:" : account->group_line, NULL);
}

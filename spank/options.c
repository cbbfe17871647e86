#include "options.h"

#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_SHM "/dev/shm"
#define KIB ((uint64_t)1024)
/* Largest accepted number. It exceeds the memory of every node, and cannot cause an overflow. */
#define MAX_SIZE (KIB * KIB * KIB * KIB * KIB)

enum kind { PATH, SIZE, NUMBER, SWITCH, BIND, BIND_RO, THROUGH, DEVICE };

static const struct option {
	const char *key;
	enum kind kind;
	/* Offset of the value in struct config, for options with one value. */
	size_t field;
} known_options[] = {
	{"jail", PATH, offsetof(struct config, jail)},
	{"scratch", PATH, offsetof(struct config, scratch)},
	{"shm", PATH, offsetof(struct config, shm)},
	{"node", PATH, offsetof(struct config, node)},
	{"spool", PATH, offsetof(struct config, spool)},
	{"bind", BIND, 0},
	{"bind_ro", BIND_RO, 0},
	{"tmp_size", SIZE, offsetof(struct config, tmp_size)},
	{"var_tmp_size", SIZE, offsetof(struct config, var_tmp_size)},
	{"shm_size", SIZE, offsetof(struct config, shm_size)},
	{"processes", NUMBER, offsetof(struct config, processes)},
	{"steps", NUMBER, offsetof(struct config, steps)},
	{"node_steps", NUMBER, offsetof(struct config, node_steps)},
	{"no_new_privs", SWITCH, offsetof(struct config, no_new_privs)},
	{"private_dev", SWITCH, offsetof(struct config, private_dev)},
	{"device", DEVICE, 0},
	{"overlay", SWITCH, offsetof(struct config, overlay)},
	{"through", THROUGH, 0},
};

/* Name of the file that contains the options, for messages. */
static const char plugstack[] = "plugstack.conf";

/* ---- values ---- */

/* Whether a path is absolute, is not "/", and has no part "." or "..". */
static bool is_plain_path(const char *path)
{
	const char *part = path;
	bool named = false;

	if (path[0] != '/' || strlen(path) >= PATH_MAX)
		return false;
	while (*part != '\0') {
		size_t length;

		part += strspn(part, "/");
		length = strcspn(part, "/");
		if ((length == 1 && part[0] == '.') ||
		    (length == 2 && part[0] == '.' && part[1] == '.'))
			return false;
		named = named || length > 0;
		part += length;
	}
	return named;
}

/* Whether a value is a name in /dev or a pattern of names, such as "nvidia*". */
static bool is_device_pattern(const char *value)
{
	return value[0] != '\0' && value[0] != '.' && strchr(value, '/') == NULL &&
	       strlen(value) <= NAME_MAX;
}

/*
 * Returns the number at the start of *value, and advances *value past it. Returns 0 if there are no
 * digits, or if the number exceeds MAX_SIZE.
 */
static uint64_t read_digits(const char **value)
{
	uint64_t number = 0;

	for (; **value >= '0' && **value <= '9'; (*value)++) {
		number = number * 10 + (uint64_t)(**value - '0');
		if (number > MAX_SIZE)
			return 0;
	}
	return number;
}

/* Returns the bytes of a size such as 512M, with K, M, G or T as powers of 1024; 0 if invalid. */
static uint64_t size_of(const char *value)
{
	static const char units[] = "KMGT";
	const char *unit;
	uint64_t size = read_digits(&value);

	if (value[0] == '\0' || value[1] != '\0')
		return 0;
	unit = strchr(units, value[0]);
	if (unit == NULL)
		return 0;
	for (const char *step = units; step <= unit; step++) {
		size *= KIB;
		if (size > MAX_SIZE)
			return 0;
	}
	return size;
}

/* ---- options ---- */

static int add_bind(struct config *config, const char *path, bool read_only,
		    const char *where)
{
	if (config->n_binds == MAX_LISTED)
		return refuse("%s: more than %d bind= and bind_ro= options: remove some", where,
			      MAX_LISTED);
	config->binds[config->n_binds++] = (struct bind){.path = path, .read_only = read_only};
	return ACCEPTED;
}

static int add_to(struct list *list, const char *key, const char *value, const char *where)
{
	if (list->n == MAX_LISTED)
		return refuse("%s: more than %d %s= options: remove some", where, MAX_LISTED, key);
	list->values[list->n++] = value;
	return ACCEPTED;
}

static int set_path(struct config *config, const struct option *option, const char *value)
{
	*(const char **)((char *)config + option->field) = value;
	return ACCEPTED;
}

static int set_size(struct config *config, const struct option *option, const char *value,
		    const char *where)
{
	uint64_t size = size_of(value);

	if (size == 0)
		return refuse("%s: %s=%s: expected a size such as 512M or 2G", where, option->key,
			      value);
	*(uint64_t *)(void *)((char *)config + option->field) = size;
	return ACCEPTED;
}

static int set_number(struct config *config, const struct option *option, const char *value,
		      const char *where)
{
	const char *end = value;
	uint64_t number = read_digits(&end);

	if (number == 0 || *end != '\0')
		return refuse("%s: %s=%s: expected a whole number of at least 1", where, option->key,
			      value);
	*(uint64_t *)(void *)((char *)config + option->field) = number;
	return ACCEPTED;
}

static int set_switch(struct config *config, const struct option *option, const char *value,
		      const char *where)
{
	bool yes = strcmp(value, "yes") == 0;

	if (!yes && strcmp(value, "no") != 0)
		return refuse("%s: %s=%s: expected yes or no", where, option->key, value);
	*(bool *)((char *)config + option->field) = yes;
	return ACCEPTED;
}

static int set_option(struct config *config, const struct option *option, const char *value,
		      const char *where)
{
	uint32_t bit = (uint32_t)1 << (option - known_options);
	bool path = option->kind != SIZE && option->kind != NUMBER && option->kind != SWITCH &&
		    option->kind != DEVICE;

	if (path && !is_plain_path(value))
		return refuse("%s: %s=%s: expected an absolute path other than /, without . or .. "
			      "parts", where, option->key, value);
	if (option->kind == DEVICE && !is_device_pattern(value))
		return refuse("%s: %s=%s: expected a name in /dev such as nvidia*", where,
			      option->key, value);
	if (option->kind <= SWITCH && (config->given & bit) != 0)
		return refuse("%s: %s= is given twice: keep one", where, option->key);
	config->given |= bit;

	switch (option->kind) {
	case PATH:
		return set_path(config, option, value);
	case SIZE:
		return set_size(config, option, value, where);
	case NUMBER:
		return set_number(config, option, value, where);
	case SWITCH:
		return set_switch(config, option, value, where);
	case BIND:
	case BIND_RO:
		return add_bind(config, value, option->kind == BIND_RO, where);
	case THROUGH:
		return add_to(&config->through, option->key, value, where);
	case DEVICE:
		return add_to(&config->devices, option->key, value, where);
	}
	return refuse("%s: %s= cannot be set", where, option->key);
}

static int parse_option(struct config *config, const char *argument, const char *where)
{
	for (size_t i = 0; i < ARRAY_SIZE(known_options); i++) {
		size_t length = strlen(known_options[i].key);

		if (strncmp(argument, known_options[i].key, length) == 0 && argument[length] == '=')
			return set_option(config, &known_options[i], argument + length + 1, where);
	}
	return refuse("%s: unknown option %s: see slurmstack-chroot(8)", where, argument);
}

/* ---- the node's own file ---- */

/* Reads the file into `lines`. Only root may write to it, because its lines are options. */
static int read_node_file(struct config *config)
{
	struct stat status;
	size_t length = 0;
	ssize_t n = 0;
	int rc = REFUSED;
	int fd = open(config->node, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return refuse("cannot open %s (node= of plugstack.conf): %s", config->node,
			      strerror(errno));
	if (fstat(fd, &status) < 0) {
		(void)refuse("cannot examine %s: %s", config->node, strerror(errno));
		goto out;
	}
	if (!S_ISREG(status.st_mode) || status.st_uid != 0 ||
	    (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
		(void)refuse("%s: expected a file that belongs to root and that only root can "
			     "write: run chown root and chmod 644", config->node);
		goto out;
	}
	while (length < sizeof(config->lines) &&
	       (n = read(fd, config->lines + length, sizeof(config->lines) - length)) > 0)
		length += (size_t)n;
	if (n < 0)
		(void)refuse("cannot read %s: %s", config->node, strerror(errno));
	else if (length == sizeof(config->lines))
		(void)refuse("%s: expected at most %d bytes: remove lines", config->node,
			     MAX_NODE_FILE);
	else if (memchr(config->lines, '\0', length) != NULL)
		(void)refuse("%s: expected text without NUL bytes: write the file again", config->node);
	else
		rc = ACCEPTED;
	config->lines[rc == ACCEPTED ? length : 0] = '\0';
out:
	close_fd(&fd);
	return rc;
}

static int parse_node_file(struct config *config)
{
	char *line = config->lines;

	if (read_node_file(config) < 0)
		return REFUSED;
	while (line != NULL) {
		char *end = strchr(line, '\n');

		if (end != NULL)
			*end++ = '\0';
		if (line[0] != '\0' && line[0] != '#' &&
		    parse_option(config, line, config->node) < 0)
			return REFUSED;
		line = end;
	}
	return ACCEPTED;
}

/* Refuses a node file that is empty or truncated, because jobs would be less isolated with it. */
static int check_node_file(const struct config *config)
{
	for (size_t i = 0; i < ARRAY_SIZE(known_options); i++) {
		const char *key = known_options[i].key;

		if (known_options[i].kind == SWITCH && (config->given & (uint32_t)1 << i) == 0)
			return refuse("%s: %s= is missing: add %s=yes or %s=no", config->node, key,
				      key, key);
	}
	return ACCEPTED;
}

/* ---- all options ---- */

static int refuse_without(const struct config *config, const char *key, const char *value,
			  const char *needed)
{
	const char *other = config->node != NULL ? config->node : "";

	/* Either file may contain the options. */
	return refuse("%s%s%s: %s=%s requires %s=yes: set it, or remove %s=", plugstack,
		      other[0] != '\0' ? " or " : "", other, key, value, needed, key);
}

static int check_together(const struct config *config)
{
	if (config->jail == NULL)
		return refuse("plugstack.conf: jail= is missing: see slurmstack-chroot(8)");
	if (config->scratch == NULL)
		return refuse("plugstack.conf: scratch= is missing: see slurmstack-chroot(8)");
	if (config->spool == NULL)
		return refuse("plugstack.conf: spool= is missing: see slurmstack-chroot(8)");
	if (config->through.n > 0 && !config->overlay)
		return refuse_without(config, "through", config->through.values[0], "overlay");
	if (config->devices.n > 0 && !config->private_dev)
		return refuse_without(config, "device", config->devices.values[0], "private_dev");
	return ACCEPTED;
}

int parse_options(struct config *config, int ac, char **av)
{
	memset(config, 0, offsetof(struct config, lines) + 1);
	for (int i = 0; i < ac; i++)
		if (parse_option(config, av[i], plugstack) < 0)
			return REFUSED;
	if (config->node != NULL &&
	    (parse_node_file(config) < 0 || check_node_file(config) < 0))
		return REFUSED;
	if (config->shm == NULL)
		config->shm = DEFAULT_SHM;
	return check_together(config);
}

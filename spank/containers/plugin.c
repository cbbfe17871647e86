/*
 * container: SPANK plugin that runs steps in users' images, with the options of Pyxis. See
 * docs/containers.md.
 *
 * The plugin inserts start-container (start.c) before the command of each task, after chroot.c has
 * moved the task into the job.
 */
#include "options.h"

#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Export only the symbols that Slurm looks up. */
#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#include <slurm/spank.h>
SPANK_PLUGIN(container, 1)
#pragma GCC visibility pop

/* `make check` may run with headers of Slurm before 23.02, which lack this function. */
extern spank_err_t spank_prepend_task_argv(spank_t spank, int argc, const char *argv[]);

/* Directory in the job's own /tmp, which also contains the writable layers of containers. */
#define STATE "/tmp/.containers"
#define MAX_ARGUMENTS 256
/*
 * Prefix of the path of the directory that each task with --container has. It must be the same as
 * OF_TASKS in images/worker/preload.c.
 */
#define BUNDLES "/tmp/.oci-"

/* ---- the arguments of plugstack.conf ---- */

static struct {
	const char *program, *importer, *cache, *site;
	/* The site's defaults of the switches; -1 for no default. */
	int defaults[N_SWITCH_OPTIONS];
	/* Directory of Slurm's commands for containers. */
	const char *clients;
	/* Arguments show_ro= and show_missing=, with paths to mount in every container. */
	const char *shown[MAX_ARGUMENTS / 2];
	size_t n_shown;
} config;

static const char *value_of(const char *argument, const char *key)
{
	size_t length = strlen(key);

	return strncmp(argument, key, length) == 0 && argument[length] == '='
		       ? argument + length + 1
		       : NULL;
}

/* Returns the option of start-container for show_ro= or show_missing=; NULL for other arguments. */
static const char *option_to_show(const char *argument)
{
	if (value_of(argument, "show_ro") != NULL)
		return "--show-ro";
	return value_of(argument, "show_missing") != NULL ? "--show-missing" : NULL;
}

/* Returns false if the argument sets no default. */
static bool parse_default(const char *argument)
{
	static const char *const keys[N_SWITCH_OPTIONS] = {
		[MOUNT_HOME] = "mount_home",
		[REMAP_ROOT] = "remap_root",
		[ENTRYPOINT] = "entrypoint",
		[WRITABLE] = "writable",
	};

	for (size_t i = 0; i < N_SWITCH_OPTIONS; i++) {
		const char *value = keys[i] == NULL ? NULL : value_of(argument, keys[i]);

		if (value == NULL)
			continue;
		config.defaults[i] = strcmp(value, "yes") == 0;
		return true;
	}
	return false;
}

static int parse_config(int ac, char **av)
{
	const struct {
		const char *key;
		const char **field;
	} keys[] = {{"program", &config.program}, {"importer", &config.importer},
		    {"cache", &config.cache}, {"site", &config.site},
		    {"clients", &config.clients}};

	memset(&config, 0, sizeof(config));
	for (size_t i = 0; i < N_SWITCH_OPTIONS; i++)
		config.defaults[i] = -1;
	for (int i = 0; i < ac; i++) {
		size_t k = 0;

		for (; k < ARRAY_SIZE(keys); k++)
			if (value_of(av[i], keys[k].key) != NULL)
				*keys[k].field = value_of(av[i], keys[k].key);
		if (parse_default(av[i]))
			continue;
		if (option_to_show(av[i]) == NULL)
			continue;
		if (config.n_shown == ARRAY_SIZE(config.shown))
			return refuse("plugstack.conf: more than %zu show_ro= and show_missing= "
				      "options: remove some", ARRAY_SIZE(config.shown));
		config.shown[config.n_shown++] = av[i];
	}
	if (config.program == NULL || config.importer == NULL || config.cache == NULL)
		return refuse("plugstack.conf: program=, importer= and cache= are required: add them");
	return ACCEPTED;
}

/* ---- starting the container ---- */

struct arguments {
	char *words[MAX_ARGUMENTS];
	size_t n;
	/* Number of words that could not be added, because space or memory was missing. */
	size_t n_missing;
};

/*
 * Appends a word, which `arguments` then owns. A word that is NULL, for example because memory is
 * exhausted, counts as missing.
 */
static void add_word(struct arguments *arguments, char *word)
{
	if (word != NULL && arguments->n < MAX_ARGUMENTS) {
		arguments->words[arguments->n++] = word;
		return;
	}
	free(word);
	arguments->n_missing++;
}

__attribute__((format(printf, 2, 3))) static void add(struct arguments *arguments,
						      const char *format, ...)
{
	va_list args;
	char *word;

	va_start(args, format);
	if (vasprintf(&word, format, args) < 0)
		word = NULL;
	va_end(args);
	add_word(arguments, word);
}

static void free_arguments(struct arguments *arguments)
{
	for (size_t i = 0; i < arguments->n; i++)
		free(arguments->words[i]);
}

/* Formats a unique name for the step. */
static int format_step(spank_t spank, char *name, size_t size)
{
	uint32_t job_id, step_id;

	if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS)
		return refuse("Slurm does not provide the step's id");
	(void)snprintf(name, size, "%" PRIu32 ".%" PRIu32, job_id, step_id);
	return ACCEPTED;
}

/* Appends the name of the container and of its directory. */
static void add_container(struct arguments *arguments, const char *step)
{
	const char *name = given.texts[NAME];
	size_t length = name == NULL ? 0 : strcspn(name, ":");

	if (name == NULL) {
		add(arguments, "--container=step-%s", step);
		return;
	}
	add(arguments, "--container=name-%.*s", (int)length, name);
	add(arguments, "--name=%.*s", (int)length, name);
	if (name[length] == ':')
		add(arguments, "--reuse=%s", name + length + 1);
}

/* Returns the value of a switch: 1 or 0, or -1 if neither the user nor the site has set it. */
static int chosen(enum switch_option option)
{
	return given.switches[option] >= 0 ? given.switches[option] : config.defaults[option];
}

static void add_options(struct arguments *arguments)
{
	static const struct {
		enum text_option option;
		const char *word;
	} forwarded[] = {{IMAGE, "image"}, {MOUNTS, "mounts"}, {ENV, "env"}, {WORKDIR, "workdir"}};

	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
		if (given.texts[forwarded[i].option] != NULL)
			add(arguments, "--%s=%s", forwarded[i].word,
			    given.texts[forwarded[i].option]);
	for (const char *kind = given.texts[UNSHARE]; kind != NULL && kind[0] != '\0';
	     kind += strcspn(kind, ",") + (kind[strcspn(kind, ",")] == ','))
		add(arguments, "--unshare=%.*s", (int)strcspn(kind, ","), kind);
	if (chosen(MOUNT_HOME) == 0)
		add(arguments, "--no-home");
	if (chosen(REMAP_ROOT) == 1)
		add(arguments, "--remap-root");
	if (chosen(WRITABLE) == 0)
		add(arguments, "--read-only");
	if (chosen(ENTRYPOINT) == 1)
		add(arguments, "--entrypoint");
	if (chosen(ENTRYPOINT_LOG) == 1)
		add(arguments, "--entrypoint-log");
}

static void add_config(struct arguments *arguments)
{
	add(arguments, "--cache=%s", config.cache);
	add(arguments, "--importer=%s", config.importer);
	if (config.site != NULL)
		add(arguments, "--site=%s", config.site);
	if (config.clients != NULL)
		add(arguments, "--clients=%s", config.clients);
	for (size_t i = 0; i < config.n_shown; i++)
		add(arguments, "%s%s", option_to_show(config.shown[i]),
		    strchr(config.shown[i], '='));
}

/* Adds the arguments about the step. Only the first node of the step saves the container. */
static int add_step(spank_t spank, struct arguments *arguments, const char *step)
{
	uint32_t n_tasks, node;

	if (spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &n_tasks) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_NODEID, &node) != ESPANK_SUCCESS)
		return refuse("Slurm does not provide the step's number of tasks and the node's number");
	add(arguments, "--step=%s", step);
	add(arguments, "--tasks=%" PRIu32, n_tasks);
	if (given.texts[SAVE] != NULL && node == 0)
		add(arguments, "--save=%s", given.texts[SAVE]);
	return ACCEPTED;
}

/* Adds start-container and all its arguments. */
static int add_start(spank_t spank, struct arguments *arguments)
{
	char step[32];

	if (format_step(spank, step, sizeof(step)) < 0)
		return REFUSED;
	add(arguments, "%s", config.program);
	add(arguments, "--state=" STATE);
	if (add_step(spank, arguments, step) < 0)
		return REFUSED;
	add_container(arguments, step);
	add_options(arguments);
	add_config(arguments);
	add(arguments, "--");
	if (arguments->n_missing > 0)
		return refuse("more than %d arguments for start-container: name each namespace "
			      "once in --container-unshare", MAX_ARGUMENTS);
	return ACCEPTED;
}

static int prepend(spank_t spank, const struct arguments *arguments)
{
	spank_err_t rc = spank_prepend_task_argv(spank, (int)arguments->n,
						 (const char **)arguments->words);

	return rc == ESPANK_SUCCESS ? ACCEPTED
				    : refuse("cannot insert start-container before the command: %s",
					     spank_strerror(rc));
}

/* ---- bundles (--container) ---- */

/*
 * Returns a descriptor of the directory that slurmstepd created for a task with --container; -1 if
 * there is no such directory.
 */
static int open_task_of_bundle(spank_t spank)
{
	uint32_t job_id, step_id;
	int task;
	char path[64];

	if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_TASK_ID, &task) != ESPANK_SUCCESS)
		return -1;
	(void)snprintf(path, sizeof(path), BUNDLES "%" PRIu32 ".%" PRIu32 ".%d", job_id, step_id,
		       task);
	return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool write_words(int fd, char *const words[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (dprintf(fd, "%s%c", words[i], '\0') < 0)
			return false;
	return true;
}

/*
 * Writes the whole command to a file, which start-container reads. The arguments of RunTimeRun in
 * oci.conf also contain the command, but Slurm 24.11 quotes arguments with an apostrophe wrongly.
 */
static int leave_command(spank_t spank, int task_fd, const struct arguments *arguments)
{
	int argc, fd;
	char **argv;
	bool written;

	if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS)
		return refuse("Slurm does not provide the command of the task");
	fd = openat(task_fd, "command", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	written = fd >= 0 && write_words(fd, arguments->words, arguments->n) &&
		  write_words(fd, argv, (size_t)argc);
	if (fd >= 0)
		(void)close(fd);
	return written ? ACCEPTED
		       : refuse("cannot write the command for start-container to a file: %s",
				strerror(errno));
}

/* ---- callbacks ---- */

int slurm_spank_init(spank_t spank, int ac, char **av)
{
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
	case S_CTX_REMOTE:
		return parse_config(ac, av) < 0 ? REFUSED : register_options(spank);
	default:
		return ACCEPTED;
	}
}

/* Reports wrong options at submission. */
int slurm_spank_init_post_opt(spank_t spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	if (spank_remote(spank) == 1)
		return ACCEPTED;
	if (take_environment(spank) < 0)
		return REFUSED;
	/* With --container, the options have an effect. The client then sets SLURM_CONTAINER. */
	if (!wants_container() && getenv("SLURM_CONTAINER") == NULL)
		warn_of_ignored();
	return ACCEPTED;
}

static int start(spank_t spank, int task_fd)
{
	struct arguments arguments = {.n = 0, .n_missing = 0};
	int rc = add_start(spank, &arguments);

	if (rc == ACCEPTED)
		rc = task_fd < 0 ? prepend(spank, &arguments)
				 : leave_command(spank, task_fd, &arguments);
	free_arguments(&arguments);
	return rc;
}

/* Runs in each task, as the job's user. */
int slurm_spank_task_init(spank_t spank, int ac, char **av)
{
	int task_fd, rc;

	(void)ac;
	(void)av;
	if (spank_remote(spank) != 1)
		return ACCEPTED;
	if (take_environment(spank) < 0)
		return REFUSED;
	task_fd = open_task_of_bundle(spank);
	if (task_fd >= 0 && wants_container())
		rc = refuse("--container and --container-image are both set: remove one");
	else
		rc = task_fd < 0 && !wants_container() ? ACCEPTED : start(spank, task_fd);
	if (task_fd >= 0)
		(void)close(task_fd);
	return rc;
}

/*
 * start-container: runs the command of a task in a container.
 *
 * The SPANK plugin (plugin.c) inserts this program before the command of each task. So the program
 * runs as the job's user and inside the job, without additional privileges. It is separate from
 * slurmstepd, because slurmstepd has secrets in memory and must never load a file of an image.
 *
 * On each node, the first task of a step imports the image, and starts the container or joins a
 * running one. The other tasks wait for the first task. A container consists of a user namespace that
 * maps only the user, and of a mount namespace with the image as root. A keeper process keeps both
 * namespaces alive until all tasks have entered. The keeper of a named container stays until the
 * step ends, so that other steps can join the container.
 */
#include "accounts.h"
#include "bundle.h"
#include "drivers.h"
#include "enter.h"
#include "environment.h"
#include "fail.h"
#include "image.h"
#include "keeper.h"
#include "root.h"
#include "run.h"
#include "save.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/*
 * Prefixes of the files of a step. They contain the answer of the step's first task to the other
 * tasks, the number of tasks that have entered the container, and the number of ended tasks.
 */
#define ANSWER "answer-"
#define ENTERED "entered-"
#define ENDED "ended-"
/* Lowest descriptor for the image's lock in tasks: scripts often use low descriptors themselves. */
#define LOCK_FD 64
/* The static ldconfig of the shared root. */
#define LDCONFIG "/usr/lib/slurmstack/usr/sbin/ldconfig"
#define PRIVATE_MODE 0700
/* File in the container's directory with the working directory and the variables. */
#define REPORT "report"
/* File in the container's directory with the options that take effect when the container starts. */
#define OPTIONS "options"
#define MAX_OPTIONS 16
/* File in the container's directory with the CLONE_* flags of its private namespaces. */
#define KINDS "kinds"
/* First argument of this program when it runs as the command of an entrypoint. */
#define TELL_ENVIRONMENT "tell-environment"
/*
 * First argument of this program when it runs as RunTimeRun of oci.conf. The task's directory and
 * the bundle follow.
 */
#define RUN_BUNDLE "run-bundle"

enum reuse { AUTO, CREATE, EXEC, NO_EXEC };

static struct {
	/*
	 * Paths: the job's containers, the user's cache, slurm-image, the site's files, and Slurm's
	 * commands for containers.
	 */
	const char *state, *cache, *importer, *site, *clients;
	/* Names of the container's directory in `state`, and of the step. */
	const char *container, *step;
	/* Value of --container-name; NULL for an unnamed container. */
	const char *name;
	enum reuse reuse;
	const char *image, *mounts, *workdir, *kept_variables;
	bool home, as_root, read_only, entrypoint, entrypoint_log;
	int kinds;
	/* Value of --container-save, NULL if it is not set; number of the step's tasks on this node. */
	const char *save;
	long n_tasks;
	struct wanted_mounts wanted;
	struct root root;
	char *const *command;
} request = {.home = true, .entrypoint = false};

/* ---- arguments ---- */

enum { STATE = 256, CACHE, IMPORTER, SITE, CLIENTS, CONTAINER, STEP, NAME, REUSE, IMAGE, MOUNTS, SHOW, SHOW_RO,
       SHOW_MISSING,
       NO_HOME, REMAP_ROOT, READ_ONLY, ENTRYPOINT, ENTRYPOINT_LOG, UNSHARE, ENVIRONMENT, WORKDIR,
       SAVE, TASKS };

static const struct option options[] = {
	{"state", required_argument, NULL, STATE},
	{"cache", required_argument, NULL, CACHE},
	{"importer", required_argument, NULL, IMPORTER},
	{"site", required_argument, NULL, SITE},
	{"clients", required_argument, NULL, CLIENTS},
	{"container", required_argument, NULL, CONTAINER},
	{"step", required_argument, NULL, STEP},
	{"name", required_argument, NULL, NAME},
	{"reuse", required_argument, NULL, REUSE},
	{"image", required_argument, NULL, IMAGE},
	{"mounts", required_argument, NULL, MOUNTS},
	{"show", required_argument, NULL, SHOW},
	{"show-ro", required_argument, NULL, SHOW_RO},
	{"show-missing", required_argument, NULL, SHOW_MISSING},
	{"no-home", no_argument, NULL, NO_HOME},
	{"remap-root", no_argument, NULL, REMAP_ROOT},
	{"read-only", no_argument, NULL, READ_ONLY},
	{"entrypoint", no_argument, NULL, ENTRYPOINT},
	{"entrypoint-log", no_argument, NULL, ENTRYPOINT_LOG},
	{"unshare", required_argument, NULL, UNSHARE},
	{"env", required_argument, NULL, ENVIRONMENT},
	{"workdir", required_argument, NULL, WORKDIR},
	{"save", required_argument, NULL, SAVE},
	{"tasks", required_argument, NULL, TASKS},
	{NULL, 0, NULL, 0},
};

static enum reuse parse_reuse(const char *word)
{
	static const char *const words[] = {"auto", "create", "exec", "no_exec"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strcmp(word, words[i]) == 0)
			return (enum reuse)i;
	fail("--reuse=%s: expected auto, create, exec or no_exec", word);
}

static int parse_kind(const char *word)
{
	static const struct {
		const char *word;
		int kind;
	} kinds[] = {{"net", CLONE_NEWNET}, {"ipc", CLONE_NEWIPC}, {"uts", CLONE_NEWUTS}};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcmp(word, kinds[i].word) == 0)
			return kinds[i].kind;
	fail("--unshare=%s: expected net, ipc or uts", word);
}

/* Parses PATH or PATH=TARGET. */
static void add_shown(char *text, bool read_only, bool if_missing)
{
	char *target = strchr(text, '=');

	if (target != NULL)
		*target++ = '\0';
	show(&request.root, (struct shown){.path = text, .target = target, .read_only = read_only,
					   .if_missing = if_missing, .optional = true});
}

static void parse_argument(int option)
{
	switch (option) {
	case STATE: request.state = optarg; break;
	case CACHE: request.cache = optarg; break;
	case IMPORTER: request.importer = optarg; break;
	case SITE: request.site = optarg; break;
	case CLIENTS: request.clients = optarg; break;
	case CONTAINER: request.container = optarg; break;
	case STEP: request.step = optarg; break;
	case NAME: request.name = optarg; break;
	case REUSE: request.reuse = parse_reuse(optarg); break;
	case IMAGE: request.image = optarg; break;
	case MOUNTS: request.mounts = optarg; break;
	case SHOW: add_shown(optarg, false, false); break;
	case SHOW_RO: add_shown(optarg, true, false); break;
	case SHOW_MISSING: add_shown(optarg, true, true); break;
	case NO_HOME: request.home = false; break;
	case REMAP_ROOT: request.as_root = true; break;
	case READ_ONLY: request.read_only = true; break;
	case ENTRYPOINT: request.entrypoint = true; break;
	case ENTRYPOINT_LOG: request.entrypoint_log = true; break;
	case UNSHARE: request.kinds |= parse_kind(optarg); break;
	case ENVIRONMENT: request.kept_variables = optarg; break;
	case WORKDIR: request.workdir = optarg; break;
	case SAVE: request.save = optarg; break;
	case TASKS: request.n_tasks = strtol(optarg, NULL, 10); break;
	default: fail("start-container: invalid arguments: see spank/containers/start.c");
	}
}

/* Expands a leading "~" to the home directory, and "%u" to the user's name. */
static const char *expand(const char *path, const struct account *account)
{
	const char *user = strstr(path, "%u");

	if (path[0] == '~')
		return format_text("%s%s", account->home, path + 1);
	if (user == NULL)
		return path;
	return format_text("%.*s%.*s%s", (int)(user - path), path,
			   (int)strcspn(account->user_line, ":"), account->user_line, user + 2);
}

/* Reads a file of the site; returns NULL if it is missing. */
static char *read_sites(const char *name)
{
	int fd = request.site == NULL ? -1
				      : open(request.site, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char *text = fd < 0 ? NULL : read_text(fd, name, NULL);

	if (fd >= 0)
		(void)close(fd);
	return text;
}

static void add_mounts(const char *text, const char *remedy)
{
	const char *reason = text == NULL || text[0] == '\0' ? NULL
							     : parse_mounts(&request.wanted, text);

	if (reason != NULL)
		fail("%s%s", reason, remedy);
}

/* Adds mounts of the bundle, the site and the user. Later mounts hide earlier ones. */
static void take_mounts(const struct image *image)
{
	char *bundles = read_text(image->fd, "mounts", NULL), *sites = read_sites("mounts");

	add_mounts(bundles, ": correct the mounts in config.json");
	add_mounts(sites, ": contact the cluster operator");
	add_mounts(request.mounts, "");
	free(bundles);
	free(sites);
}

static void parse_arguments(int argc, char **argv)
{
	int option;

	/* "+" ends the parsing at the command, whose own options follow. */
	while ((option = getopt_long(argc, argv, "+", options, NULL)) != -1)
		parse_argument(option);
	request.command = argv + optind;
	if (request.state == NULL || request.cache == NULL || request.importer == NULL ||
	    request.container == NULL || request.step == NULL || request.command[0] == NULL)
		fail("start-container: --state, --cache, --importer, --container, --step and a "
		     "command are required");
}

/* ---- directories ---- */

static int open_directory(int parent_fd, const char *name)
{
	int fd;

	if (mkdirat(parent_fd, name, PRIVATE_MODE) < 0 && errno != EEXIST)
		fail("cannot make the directory %s of the job's containers: %s: "
		     "check the free space of /tmp in the job", name, strerror(errno));
	fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		fail("cannot open the directory %s of the job's containers: %s: "
		     "start the job again", name, strerror(errno));
	return fd;
}

/* Locks the container's directory, so that other steps wait until this process ends. */
static int lock_container(int container_fd)
{
	int fd = openat(container_fd, "lock", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		fail("cannot open the container's lock: %s: "
		     "check the free space of /tmp in the job", strerror(errno));
	lock_file(fd, "the container");
	return fd;
}

/* Opens a file in the container's directory for writing, and removes its old content. */
static int open_record(int container_fd, const char *name)
{
	int fd = openat(container_fd, name,
			O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		fail("cannot write %s/%s/%s: %s", request.state, request.container, name,
		     strerror(errno));
	return fd;
}

static void record_text(int container_fd, const char *name, const char *text)
{
	int fd = open_record(container_fd, name);

	if (dprintf(fd, "%s", text) < 0)
		fail("cannot write %s/%s/%s: %s", request.state, request.container, name,
		     strerror(errno));
	(void)close(fd);
}

/* ---- answer to the tasks ---- */

/* Working directory and variables of a container; `length` is in bytes. */
struct surroundings {
	char *directory, *variables;
	size_t length;
};

static void write_report(int container_fd, const struct surroundings *surroundings)
{
	int fd = open_record(container_fd, REPORT);

	if (dprintf(fd, "%s%c", surroundings->directory, '\0') < 0 ||
	    write(fd, surroundings->variables, surroundings->length) !=
		    (ssize_t)surroundings->length)
		fail("cannot write the container's variables: %s: "
		     "check the free space of /tmp in the job", strerror(errno));
	(void)close(fd);
}

/*
 * Writes the answer, which the other tasks of the step read: the keeper's pid, the kinds of its
 * private namespaces, the working directory and the variables.
 */
static void answer(int answer_fd, int container_fd, pid_t keeper)
{
	size_t length;
	char *report = read_text(container_fd, REPORT, &length);

	if (report == NULL)
		fail("cannot read the container's variables: %s", strerror(errno));
	if (dprintf(answer_fd, "%d %d%c", (int)keeper, request.kinds, '\0') < 0 ||
	    write(answer_fd, report, length) != (ssize_t)length)
		fail("cannot write the step's answer file: %s: "
		     "check the free space of /tmp in the job", strerror(errno));
	free(report);
}

/* ---- the entrypoint ---- */

/* Runs as the command of an entrypoint. Reports the working directory and the variables. */
static int tell_environment(const char *number)
{
	FILE *file = fdopen(atoi(number), "w");
	char *directory = getcwd(NULL, 0);

	if (file == NULL || directory == NULL)
		return CANNOT_START;
	(void)fprintf(file, "%s%c", directory, '\0');
	for (char **variable = environ; *variable != NULL; variable++)
		(void)fprintf(file, "%s%c", *variable, '\0');
	return fclose(file) == 0 ? 0 : CANNOT_START;
}

/* Splits a list of NUL-terminated words, and appends `more`. */
static char **split_words(char *words, size_t length, char *const more[], size_t n_more)
{
	size_t n = 0;
	char **argv = calloc(length + n_more + 1, sizeof(*argv));

	if (argv == NULL)
		fail("out of memory");
	for (char *word = words; word < words + length; word += strlen(word) + 1)
		argv[n++] = word;
	for (size_t i = 0; i < n_more; i++)
		argv[n++] = more[i];
	return argv;
}

__attribute__((noreturn)) static void exec_entrypoint(char *words, size_t length, int program_fd,
						      int output_fd)
{
	char *program = format_text("/proc/self/fd/%d", program_fd);
	char *number = format_text("%d", output_fd);
	char *const more[] = {program, (char *)TELL_ENVIRONMENT, number};
	char **argv = split_words(words, length, more, ARRAY_SIZE(more));
	int null_fd = open("/dev/null", O_RDWR);

	/* The task's command needs the standard streams, so the entrypoint must not use them. */
	(void)dup2(null_fd, STDIN_FILENO);
	(void)dup2(request.entrypoint_log ? STDERR_FILENO : null_fd, STDOUT_FILENO);
	if (!request.entrypoint_log)
		(void)dup2(null_fd, STDERR_FILENO);
	(void)execvp(argv[0], argv);
	_Exit(CANNOT_START);
}

/* Whether this process has the variable with the same value. */
static bool is_unchanged(const char *variable)
{
	size_t length = strcspn(variable, "=");
	char *name = format_text("%.*s", (int)length, variable);
	const char *value = getenv(name);
	bool same = value != NULL && variable[length] == '=' &&
		    strcmp(value, variable + length + 1) == 0;

	free(name);
	return same;
}

/*
 * Adds only variables that the entrypoint has changed, because other variables can have different
 * values in each task of the step.
 */
static void take_changes(struct surroundings *surroundings, const char *output, size_t length)
{
	size_t directory = strlen(output) + 1;
	char *both = realloc(surroundings->variables, surroundings->length + length);

	if (both == NULL)
		fail("out of memory");
	surroundings->variables = both;
	surroundings->directory = format_text("%s", output);
	for (const char *variable = output + directory; variable < output + length;
	     variable += strlen(variable) + 1) {
		size_t size = strlen(variable) + 1;

		if (is_unchanged(variable))
			continue;
		memcpy(both + surroundings->length, variable, size);
		surroundings->length += size;
	}
}

/* Runs the entrypoint in the container. */
static void run_entrypoint(struct surroundings *surroundings, char *words, size_t length,
			   int program_fd)
{
	/* The entrypoint's command inherits both descriptors. */
	int output_fd = memfd_create("environment", 0), status;
	pid_t pid = fork();
	char *output;

	if (output_fd < 0 || pid < 0)
		fail("cannot run the image's entrypoint: %s", strerror(errno));
	if (pid == 0)
		exec_entrypoint(words, length, program_fd, output_fd);
	status = wait_for(pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || lseek(output_fd, 0, SEEK_END) == 0)
		fail("the image's entrypoint ended before it started the command: use "
		     "--container-entrypoint-log to see its output, or "
		     "--no-container-entrypoint");
	(void)lseek(output_fd, 0, SEEK_SET);
	output = read_all(output_fd, &length);
	if (output == NULL)
		fail("cannot read the variables of the image's entrypoint: %s", strerror(errno));
	take_changes(surroundings, output, length);
	free(output);
	(void)close(output_fd);
}

/* ---- keeper ---- */

/* Closes all files except the locks, because slurmstepd waits until the step's pipes are closed. */
static void keep_files(int image_lock_fd, int keeper_lock_fd)
{
	int null_fd = open("/dev/null", O_RDWR);
	int image_fd = fcntl(image_lock_fd, F_DUPFD, LOCK_FD);
	int keeper_fd = fcntl(keeper_lock_fd, F_DUPFD, LOCK_FD);

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		(void)dup2(null_fd, fd);
	(void)dup2(image_fd, STDERR_FILENO + 1);
	(void)dup2(keeper_fd, STDERR_FILENO + 2);
	(void)close_range(STDERR_FILENO + 3, ~0U, 0);
}

__attribute__((noreturn)) static void keep(int image_lock_fd, int keeper_lock_fd, int ready_fd)
{
	pid_t pid = getpid();
	sigset_t all;

	if (write(ready_fd, &pid, sizeof(pid)) != sizeof(pid))
		_Exit(CANNOT_START);
	keep_files(image_lock_fd, keeper_lock_fd);
	/*
	 * Block all signals: Slurm sends them to the keeper too, but only tasks must handle them.
	 */
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	for (;;)
		(void)pause();
}

/*
 * Forks the keeper. Returns false in the keeper, which writes its pid to *ready_fd when it is
 * ready. Forks twice, because the keeper must not be a child of this process: this process becomes
 * the command, which may wait for all its children.
 */
static bool fork_keeper(int *ready_fd, int *hear_fd)
{
	int ready[2];
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0)
		fail("cannot make a pipe: %s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		pid = fork();
		if (pid != 0)
			_Exit(pid < 0 ? CANNOT_START : 0);
		(void)close(ready[0]);
		*ready_fd = ready[1];
		return false;
	}
	if (pid < 0 || waitpid(pid, NULL, 0) < 0)
		fail("cannot start the process that keeps the container's namespaces: %s",
		     strerror(errno));
	(void)close(ready[1]);
	*hear_fd = ready[0];
	return true;
}

static pid_t await_keeper(int hear_fd)
{
	pid_t pid;

	/* If the keeper reports no pid, it has printed an error. */
	if (read(hear_fd, &pid, sizeof(pid)) != sizeof(pid))
		return 0;
	(void)close(hear_fd);
	return pid;
}

/* ---- GPU drivers ---- */

/* Adds the libraries of the node's GPU driver to the loader's cache of the container. */
static void add_drivers_to_loader(void)
{
	static const char *const argv[] = {LDCONFIG, NULL};
	int fd;

	if (!uses_libraries_of_driver())
		return;
	if (mkdir("/etc/ld.so.conf.d", 0755) < 0 && errno != EEXIST)
		return;
	/* Without this file, ldconfig ignores the directory. */
	fd = open("/etc/ld.so.conf", O_WRONLY | O_CREAT | O_EXCL, 0644);
	if (fd >= 0) {
		(void)dprintf(fd, "include /etc/ld.so.conf.d/*.conf\n");
		(void)close(fd);
	}
	fd = open("/etc/ld.so.conf.d/000-slurmstack.conf", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		return;
	(void)dprintf(fd, DRIVERS "/lib\n");
	(void)close(fd);
	/* Ignore errors. Images without glibc do not use the loader's cache. */
	free(output_of(argv));
}

/* ---- options that take effect when a container starts ---- */

/* Lists the options of this step that take effect when a container starts. Returns their number. */
static size_t list_options(char *list[MAX_OPTIONS])
{
	const struct {
		bool given;
		const char *name, *value;
	} all[] = {
		{request.image != NULL, "--container-image=", request.image},
		{request.mounts != NULL, "--container-mounts=", request.mounts},
		{!request.home, "--no-container-mount-home", ""},
		{request.as_root, "--container-remap-root", ""},
		{request.read_only, "--container-readonly", ""},
		{request.entrypoint, "--container-entrypoint", ""},
		{(request.kinds & CLONE_NEWNET) != 0, "--container-unshare=net", ""},
		{(request.kinds & CLONE_NEWIPC) != 0, "--container-unshare=ipc", ""},
		{(request.kinds & CLONE_NEWUTS) != 0, "--container-unshare=uts", ""},
	};
	size_t n = 0;

	_Static_assert(ARRAY_SIZE(all) <= MAX_OPTIONS, "MAX_OPTIONS is too small");
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (all[i].given)
			list[n++] = format_text("%s%s", all[i].name, all[i].value);
	return n;
}

static void record_options(int container_fd)
{
	char *list[MAX_OPTIONS];
	size_t n = list_options(list);
	int fd = open_record(container_fd, OPTIONS);

	for (size_t i = 0; i < n; i++) {
		if (dprintf(fd, "%s%c", list[i], '\0') < 0)
			fail("cannot record the container's options: %s: "
			     "check the free space of /tmp in the job", strerror(errno));
		free(list[i]);
	}
	(void)close(fd);
}

/* Whether a list of NUL-terminated words contains the word. */
static bool has_word(const char *words, size_t length, const char *word)
{
	for (const char *each = words; each < words + length; each += strlen(each) + 1)
		if (strcmp(each, word) == 0)
			return true;
	return false;
}

/* Warns that the running container ignores options of this step that differ from its own. */
static void warn_of_options(int container_fd)
{
	char *list[MAX_OPTIONS], *ignored = format_text("%s", "");
	size_t n = list_options(list), length;
	char *recorded = read_text(container_fd, OPTIONS, &length);

	if (recorded == NULL)
		fail("cannot read the container's options: %s", strerror(errno));
	for (size_t i = 0; i < n; i++) {
		if (!has_word(recorded, length, list[i]))
			ignored = format_text("%s%s%s", ignored, ignored[0] == '\0' ? "" : ", ",
					      list[i]);
		free(list[i]);
	}
	if (ignored[0] != '\0')
		tell("the container %s already runs, so these options have no effect: %s",
		     request.name, ignored);
	free(recorded);
}

/* ---- start ---- */

/* Adds the paths that every container has. plugin.c adds those of plugstack.conf. */
static void show_usual(const struct account *account)
{
	static const char *const usual[] = {"/proc", "/sys", "/dev", "/tmp", "/var/tmp"};

	for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
		show(&request.root, (struct shown){.path = usual[i], .optional = true});
	if (request.home && strcmp(account->home, "/") != 0)
		show(&request.root, (struct shown){.path = account->home,
						   .target = request.as_root ? "/root"
									     : account->home,
						   .optional = true});
}

static void show_accounts(void)
{
	static const char *const names[] = {"passwd", "group"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		show(&request.root,
		     (struct shown){.path = format_text("%s/%s/%s", request.state,
							request.container, names[i]),
				    .target = format_text("/etc/%s", names[i]),
				    .read_only = true});
}

/* Reads working directory and variables of an image. */
static struct surroundings surroundings_of(const struct image *image)
{
	struct surroundings surroundings;

	surroundings.variables = read_text(image->fd, "environment", &surroundings.length);
	surroundings.directory = read_text(image->fd, "directory", NULL);
	if (surroundings.variables == NULL || surroundings.directory == NULL)
		fail("the image in the cache is incomplete: %s: run slurm-image remove",
		     strerror(errno));
	return surroundings;
}

/* Appends a variable, which overrides that of the image. */
static void add_variable(struct surroundings *surroundings, const char *name, const char *value)
{
	char *text = format_text("%s=%s", name, value);
	size_t size = strlen(text) + 1;
	char *longer = realloc(surroundings->variables, surroundings->length + size);

	if (longer == NULL)
		fail("out of memory");
	memcpy(longer + surroundings->length, text, size);
	surroundings->variables = longer;
	surroundings->length += size;
	free(text);
}

/* Puts the site's variables first, so that the variables of the image override them. */
static void add_sites_variables(struct surroundings *surroundings)
{
	char *lines = read_sites("environment");
	size_t length = lines == NULL ? 0 : strlen(lines);
	char *both = length == 0 ? NULL : malloc(length + surroundings->length);

	if (both != NULL) {
		for (size_t i = 0; i < length; i++)
			both[i] = lines[i] == '\n' ? '\0' : lines[i];
		memcpy(both + length, surroundings->variables, surroundings->length);
		free(surroundings->variables);
		surroundings->variables = both;
		surroundings->length += length;
	}
	free(lines);
}

__attribute__((noreturn)) static void be_container(int container_fd, int keepers_fd,
						   const struct image *image,
						   const struct account *account, int ready_fd)
{
	const uid_t uid = request.as_root ? 0 : geteuid();
	const gid_t gid = request.as_root ? 0 : getegid();
	struct surroundings surroundings = surroundings_of(image);
	size_t length = 0;
	char *entrypoint = request.entrypoint ? read_text(image->fd, "entrypoint", &length) : NULL;
	/* Open this program before enter_root: its path does not exist in the container. */
	int program_fd = open("/proc/self/exe", O_RDONLY);
	int keeper_fd = record_keeper(keepers_fd, request.step);

	add_sites_variables(&surroundings);
	if (request.home)
		add_variable(&surroundings, "HOME", request.as_root ? "/root" : account->home);
	make_namespaces(uid, gid, request.kinds);
	enter_root(&request.root, surroundings.directory);
	set_variables(surroundings.variables, surroundings.length, request.kept_variables);
	add_drivers_to_loader();
	if (refuses_infiniband())
		hide_directory("/dev/infiniband");
	if (request.read_only)
		make_root_read_only();
	if (length > 0)
		run_entrypoint(&surroundings, entrypoint, length, program_fd);
	write_report(container_fd, &surroundings);
	keep(image->lock_fd, keeper_fd, ready_fd);
}

static pid_t start_container(int container_fd, int keepers_fd, const struct account *account,
			     const struct image *image, const char *image_path)
{
	char *access = read_text(image->fd, "access", NULL);
	char *kinds = format_text("%d", request.kinds);
	int ready_fd, hear_fd;

	record_options(container_fd);
	record_text(container_fd, KINDS, kinds);
	free(kinds);
	/* A bundle can request a read-only root. */
	if (access != NULL && strcmp(access, "ro") == 0)
		request.read_only = true;
	free(access);
	take_mounts(image);
	write_accounts(container_fd, image->root_fd, account, request.as_root);
	show_usual(account);
	show_accounts();
	request.root.image = format_text("%s/root", image_path);
	request.root.container = format_text("%s/%s", request.state, request.container);
	request.root.wanted = &request.wanted;
	if (!fork_keeper(&ready_fd, &hear_fd))
		be_container(container_fd, keepers_fd, image, account, ready_fd);
	return await_keeper(hear_fd);
}

/* ---- join ---- */

/* Returns the image's directory from the record of an earlier step, or NULL without a record. */
static char *earlier_image(int container_fd)
{
	return read_text(container_fd, "image", NULL);
}

/* Returns the kinds of private namespaces that the running container has. */
static int earlier_kinds(int container_fd)
{
	char *kinds = read_text(container_fd, KINDS, NULL);
	int number;

	if (kinds == NULL)
		fail("cannot read the container's namespaces: %s", strerror(errno));
	number = atoi(kinds);
	free(kinds);
	return number;
}

/*
 * Starts a keeper for this step, because this step may end later than the step that started the
 * container. This keeper also locks the image, so that the cache keeps the files of the container.
 */
static pid_t join_container(int container_fd, int keepers_fd, pid_t keeper)
{
	int process_fd = (int)syscall(SYS_pidfd_open, keeper, 0), ready_fd, hear_fd, lock_fd;
	char *image_path = earlier_image(container_fd);
	struct image image;

	if (image_path == NULL || !open_image(image_path, &image))
		fail("--container-name=%s: cannot lock the container's image: %s", request.name,
		     strerror(errno));
	free(image_path);
	if (!fork_keeper(&ready_fd, &hear_fd)) {
		lock_fd = record_keeper(keepers_fd, request.step);
		if (process_fd < 0 ||
		    setns(process_fd, CLONE_NEWUSER | CLONE_NEWNS | request.kinds) < 0)
			fail("cannot enter the container %s: %s", request.name, strerror(errno));
		keep(image.lock_fd, lock_fd, ready_fd);
	}
	return await_keeper(hear_fd);
}

/* ---- main ---- */

/* Uses the image reference of the earlier step that created the container. */
static void keep_reference(int container_fd)
{
	char *earlier = read_text(container_fd, "reference", NULL);

	if (earlier == NULL)
		fail("cannot read the container's image: %s", strerror(errno));
	if (request.image != NULL && strcmp(request.image, earlier) != 0)
		tell("--container-image=%s has no effect: the container %s has the image %s",
		     request.image, request.name, earlier);
	request.image = earlier;
}

static struct image image_of(int container_fd, char **image_path)
{
	char *path = earlier_image(container_fd);
	struct image image;

	if (path != NULL && request.reuse == CREATE)
		fail("--container-name=%s:create: the container already exists: choose another "
		     "name, or omit :create", request.name);
	if (path == NULL && request.image == NULL)
		fail("--container-name=%s: the job has no such container on this node: add "
		     "--container-image", request.name);
	if (path == NULL) {
		image = find_image(request.cache, request.importer, request.image, &path);
		record_text(container_fd, "reference", request.image);
		record_text(container_fd, "image", path);
	} else if (open_image(path, &image)) {
		keep_reference(container_fd);
	} else {
		fail("--container-name=%s: the image %s was removed from the cache: choose another "
		     "name", request.name, path);
	}
	*image_path = path;
	return image;
}

/* Starts or joins the container of the step. Returns the pid of its keeper, or 0 on failure. */
static pid_t begin(int container_fd)
{
	int keepers_fd = open_keepers(container_fd);
	pid_t keeper = find_keeper(keepers_fd);
	struct account account;
	struct image image;
	char *image_path;

	if (keeper == 0 && request.reuse == EXEC)
		fail("--container-name=%s:exec: the container does not run on this node: omit :exec",
		     request.name);
	/* The kernel forbids a second overlay with the same writable layer. */
	if (keeper > 0 && request.reuse == NO_EXEC)
		fail("--container-name=%s:no_exec: the container runs on this node: omit :no_exec "
		     "to join it, choose another name, or wait for the end of its steps",
		     request.name);
	if (keeper > 0 && request.reuse != CREATE) {
		warn_of_options(container_fd);
		request.kinds = earlier_kinds(container_fd);
		return join_container(container_fd, keepers_fd, keeper);
	}
	account = find_account();
	request.cache = expand(request.cache, &account);
	image = image_of(container_fd, &image_path);
	return start_container(container_fd, keepers_fd, &account, &image, image_path);
}

/* Starts the container in a child process, so that this process can record a failure. */
static void begin_step(int state_fd, int answer_fd)
{
	int container_fd, status;
	pid_t keeper, pid = fork();

	if (pid < 0)
		fail("cannot start the container: %s", strerror(errno));
	if (pid == 0) {
		container_fd = open_directory(state_fd, request.container);
		(void)lock_container(container_fd);
		keeper = begin(container_fd);
		if (keeper > 0)
			answer(answer_fd, container_fd, keeper);
		_Exit(keeper > 0 ? 0 : CANNOT_START);
	}
	status = wait_for(pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	/*
	 * The child has printed an error. The empty word makes the other tasks exit silently. On a
	 * full disk, they try to start the container as well.
	 */
	if (ftruncate(answer_fd, 0) < 0 || write(answer_fd, "", 1) != 1)
		_Exit(CANNOT_START);
}

/* Opens a file of the step for reading and appending. */
static int open_of_step(int state_fd, const char *prefix)
{
	char *name = format_text("%s%s", prefix, request.step);
	int fd = openat(state_fd, name, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		fail("cannot open %s/%s: %s", request.state, name, strerror(errno));
	free(name);
	return fd;
}

/* Opens and locks the answer file, which the first task of the step writes. */
static int open_answer(int state_fd)
{
	int fd = open_of_step(state_fd, ANSWER);

	lock_file(fd, "the step's answer file");
	return fd;
}

static struct entry read_answer(int answer_fd)
{
	struct entry entry = {
		.kinds = CLONE_NEWUSER | CLONE_NEWNS,
		.kept_variables = request.kept_variables,
		.clients = request.clients,
		.as_root = request.as_root,
	};
	size_t length, keeper, directory;
	char *text, *kinds;

	(void)lseek(answer_fd, 0, SEEK_SET);
	text = read_all(answer_fd, &length);
	if (text == NULL)
		fail("cannot read the step's answer file: %s", strerror(errno));
	entry.keeper = (pid_t)strtol(text, &kinds, 10);
	entry.kinds |= atoi(kinds);
	keeper = strlen(text) + 1;
	/* If the answer contains no pid of a keeper, the first task has printed an error. */
	if (entry.keeper <= 0 || keeper >= length)
		_Exit(CANNOT_START);
	directory = keeper + strlen(text + keeper) + 1;
	entry.directory = request.workdir != NULL ? request.workdir : text + keeper;
	entry.variables = text + directory;
	entry.length = directory < length ? length - directory : 0;
	return entry;
}

/* Lets the command inherit a lock on the image, because the keeper may end before the command. */
static void inherit_lock(int state_fd)
{
	int container_fd = open_directory(state_fd, request.container);
	char *path = earlier_image(container_fd);
	struct image image;

	if (path == NULL || !open_image(path, &image) ||
	    fcntl(image.lock_fd, F_DUPFD, LOCK_FD) < 0)
		fail("cannot lock the container's image: %s", strerror(errno));
	(void)close(container_fd);
	free(path);
}

int main(int argc, char **argv)
{
	int state_fd, answer_fd;
	struct tasks entered;
	struct entry entry;
	struct save save;

	if (argc == 3 && strcmp(argv[1], TELL_ENVIRONMENT) == 0)
		return tell_environment(argv[2]);
	if (argc == 4 && strcmp(argv[1], RUN_BUNDLE) == 0)
		argv = take_bundle(argv[2], argv[3], &argc);
	parse_arguments(argc, argv);
	state_fd = open_directory(AT_FDCWD, request.state);
	answer_fd = open_answer(state_fd);
	if (lseek(answer_fd, 0, SEEK_END) == 0)
		begin_step(state_fd, answer_fd);
	entry = read_answer(answer_fd);
	/* Closing the file releases its lock, because the keeper has no copy of the descriptor. */
	(void)close(answer_fd);
	if (request.name == NULL && request.save == NULL) {
		inherit_lock(state_fd);
		entered = (struct tasks){open_of_step(state_fd, ENTERED), request.n_tasks};
		entry.entered = &entered;
	}
	if (request.save == NULL)
		enter(&entry, request.command);
	save = (struct save){
		.target = request.save,
		.importer = request.importer,
		.container = format_text("%s/%s", request.state, request.container),
		.ended = {open_of_step(state_fd, ENDED), request.n_tasks},
	};
	run_and_save(&entry, request.command, &save);
}

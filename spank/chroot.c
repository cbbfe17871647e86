/*
 * chroot: a SPANK plugin that puts every step of a job into the shared root
 * file system ("the jail") of the cluster.
 *
 *   required /usr/lib/slurmstack/chroot.so jail=/mnt/jail scratch=/var/spool/slurmstack bind=...
 *
 *   jail=DIR      the shared root file system as this node sees it
 *   scratch=DIR   node-local disk that holds the private /tmp and /var/tmp of jobs
 *   shm=DIR       memory-backed directory for the private /dev/shm (default /dev/shm)
 *   bind=PATH     a file or directory of this node, shown at the same path in the jail;
 *                 may be given again, mounted in the order given
 *   bind_ro=PATH  the same, read-only
 *
 * The move happens in slurm_spank_init_post_opt of slurmstepd, not in the task:
 * slurmstepd opens the output files of a job itself, and they have to land where
 * the user looks for them.
 *
 * The jail is written by users, root among them where a site allows that. So no path
 * below it is ever resolved by name from outside: each mount point is opened with
 * openat2(2) relative to the jail, without following any symbolic link, and trees are
 * attached to the file descriptor that this gives (move_mount(2), Linux 5.12 and later).
 * The node's own side lies in directories that only root can enter.
 *
 * Every failure ends in a negative code. Slurm takes a positive one for success, and
 * the step would run outside the jail.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Everything is hidden but what Slurm looks up by name. */
#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#include <slurm/spank.h>
SPANK_PLUGIN(chroot, 1)
#pragma GCC visibility pop

#define ACCEPTED 0
#define REFUSED (-1)

#define MAX_BINDS 64
#define DEFAULT_SHM "/dev/shm"

/* Below scratch= and shm=, which may be writable by others (an emptyDir is, /dev/shm too). */
#define JOBS_DIRECTORY "slurm-jobs"
/* "<jobid>.<uid>": two 32-bit numbers, the dot and the final NUL. */
#define JOB_NAME_SIZE 24

#define PRIVATE_MODE ((mode_t)0700)
#define TMP_MODE ((mode_t)01777)

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

struct bind {
	const char *path;
	bool read_only;
};

/* The strings belong to the argument vector that Slurm keeps for the plugin. */
struct config {
	const char *jail;
	const char *scratch;
	const char *shm;
	struct bind binds[MAX_BINDS];
	size_t n_binds;
};

/* A directory of the job on this node, and where the job finds it. */
struct private_mount {
	const char *base;
	const char *name;
	const char *target;
};

/* True once this slurmstepd, and so every task that it forks, is inside the jail. */
static bool inside_jail = false;
/* The first thing that went wrong, without the plugin's name: at most two paths and words. */
static char refusal[2 * PATH_MAX + 256] = "";

/* Logs why the plugin refuses, keeps the first reason, and returns the code for Slurm. */
__attribute__((format(printf, 1, 2))) static int refuse(const char *format, ...)
{
	char line[sizeof(refusal)];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(line, sizeof(line), format, args);
	va_end(args);

	if (refusal[0] == '\0')
		memcpy(refusal, line, sizeof(refusal));
	slurm_error("chroot: %s", line);
	return REFUSED;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

/* ---- options of plugstack.conf ---- */

/* Absolute, not "/" itself, and without "." or ".." parts, so that it means one place. */
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

/* The value when the argument is "<key>=...", else NULL. */
static const char *value_of(const char *argument, const char *key)
{
	size_t length = strlen(key);

	if (strncmp(argument, key, length) != 0 || argument[length] != '=')
		return NULL;
	return argument + length + 1;
}

static int set_once(const char **field, const char *key, const char *value)
{
	if (*field != NULL)
		return refuse("plugstack.conf: %s= is given twice: keep one", key);
	*field = value;
	return ACCEPTED;
}

static int add_bind(struct config *config, const char *path, bool read_only)
{
	if (config->n_binds == MAX_BINDS)
		return refuse("plugstack.conf: more than %d bind= and bind_ro= options", MAX_BINDS);
	config->binds[config->n_binds++] = (struct bind){.path = path, .read_only = read_only};
	return ACCEPTED;
}

static int parse_option(struct config *config, const char *argument)
{
	static const char *const keys[] = {"jail", "scratch", "shm", "bind", "bind_ro"};
	const char *value = NULL;
	const char *key = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(keys) && value == NULL; i++) {
		key = keys[i];
		value = value_of(argument, key);
	}
	if (value == NULL)
		return refuse("plugstack.conf: unknown option %s: expected jail=, scratch=, shm=, "
			      "bind= or bind_ro=", argument);
	if (!is_plain_path(value))
		return refuse("plugstack.conf: %s=%s: expected an absolute path, not / itself, "
			      "without . or .. parts", key, value);

	if (strcmp(key, "jail") == 0)
		return set_once(&config->jail, key, value);
	if (strcmp(key, "scratch") == 0)
		return set_once(&config->scratch, key, value);
	if (strcmp(key, "shm") == 0)
		return set_once(&config->shm, key, value);
	return add_bind(config, value, strcmp(key, "bind_ro") == 0);
}

static int parse_options(struct config *config, int ac, char **av)
{
	*config = (struct config){0};
	for (int i = 0; i < ac; i++)
		if (parse_option(config, av[i]) < 0)
			return REFUSED;
	if (config->jail == NULL)
		return refuse("plugstack.conf: jail= is missing");
	if (config->scratch == NULL)
		return refuse("plugstack.conf: scratch= is missing");
	if (config->shm == NULL)
		config->shm = DEFAULT_SHM;
	return ACCEPTED;
}

/* ---- the job's own directories on the node ---- */

/*
 * With the user in the name, a leftover of an older job with the same number (a controller
 * that lost its state counts from 1 again) never meets another user.
 */
static void format_job_name(char name[JOB_NAME_SIZE], uint32_t job_id, uid_t uid)
{
	(void)snprintf(name, JOB_NAME_SIZE, "%" PRIu32 ".%" PRIu32, job_id, (uint32_t)uid);
}

/*
 * Makes the directory `name` below `parent` unless it is there, opens it, and checks that
 * it is root's and, when private, closed to others. Steps of one job may do this at the
 * same time. `base` is for messages.
 */
static int open_own_directory(int parent, const char *name, const char *base, bool private)
{
	struct stat status;
	int fd;

	if (mkdirat(parent, name, PRIVATE_MODE) < 0 && errno != EEXIST)
		return refuse("cannot make directory %s below %s: %s", name, base,
			      strerror(errno));
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return refuse("cannot open directory %s below %s: %s", name, base,
			      strerror(errno));
	if (fstat(fd, &status) < 0)
		(void)refuse("cannot examine directory %s below %s: %s", name, base,
			     strerror(errno));
	else if (status.st_uid != 0)
		(void)refuse("directory %s below %s belongs to user %" PRIu32 ": expected root; "
			     "remove it", name, base, (uint32_t)status.st_uid);
	else if (private && (status.st_mode & 077) != 0)
		(void)refuse("directory %s below %s is open to others (mode %04o): expected 0700",
			     name, base, (unsigned int)(status.st_mode & 07777));
	else if (!private && fchmod(fd, TMP_MODE) < 0)
		/* Always, whoever made it: a first step may still be between mkdir and here. */
		(void)refuse("cannot set the mode of directory %s below %s: %s", name, base,
			     strerror(errno));
	else
		return fd;
	close_fd(&fd);
	return REFUSED;
}

/* Opens <base>/slurm-jobs/<job_name>/<name>, a directory like /tmp; or REFUSED. */
static int open_job_directory(const char *base, const char *job_name, const char *name)
{
	int base_fd, jobs_fd = -1, job_fd = -1, fd = REFUSED;

	base_fd = open(base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (base_fd < 0)
		return refuse("cannot open directory %s on the node: %s", base, strerror(errno));
	jobs_fd = open_own_directory(base_fd, JOBS_DIRECTORY, base, true);
	if (jobs_fd < 0)
		goto out;
	job_fd = open_own_directory(jobs_fd, job_name, base, true);
	if (job_fd < 0)
		goto out;
	fd = open_own_directory(job_fd, name, base, false);
out:
	close_fd(&job_fd);
	close_fd(&jobs_fd);
	close_fd(&base_fd);
	return fd;
}

/* ---- the jail ---- */

/* Opens a mount point in the jail; it and every directory above it must be real ones. */
static int open_mount_point(int jail_fd, const struct config *config, const char *path,
			    bool directory)
{
	struct open_how how = {
		/* Without O_NOFOLLOW, which would open a symbolic link itself. */
		.flags = O_PATH | O_CLOEXEC | (directory ? O_DIRECTORY : 0),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS,
	};
	const char *kind = directory ? "directory" : "file";
	struct stat status;
	int fd = (int)syscall(SYS_openat2, jail_fd, path, &how, sizeof(how));

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return refuse("mount point %s%s is missing in the jail: make it there, a %s: %s",
			      config->jail, path, kind, strerror(errno));
	if (fd < 0 && errno == ELOOP)
		return refuse("mount point %s%s leads through a symbolic link in the jail: make "
			      "it a real %s: %s", config->jail, path, kind, strerror(errno));
	if (fd < 0)
		return refuse("cannot open mount point %s%s in the jail: %s", config->jail, path,
			      strerror(errno));
	if (directory)
		return fd;
	/* O_DIRECTORY has no opposite. */
	if (fstat(fd, &status) < 0)
		(void)refuse("cannot examine mount point %s%s in the jail: %s", config->jail, path,
			     strerror(errno));
	else if (S_ISDIR(status.st_mode))
		(void)refuse("mount point %s%s is a directory in the jail: make it a file: %s",
			     config->jail, path, strerror(EISDIR));
	else
		return fd;
	close_fd(&fd);
	return REFUSED;
}

static int restrict_tree(int tree_fd, const char *path, uint64_t attributes)
{
	struct mount_attr attr = {.attr_set = attributes};

	if (attributes == 0)
		return ACCEPTED;
	if (mount_setattr(tree_fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
		return refuse("cannot set mount options for %s in the jail: %s", path,
			      strerror(errno));
	return ACCEPTED;
}

/* Attaches a detached tree of mounts at `path` in the jail. */
static int attach(int jail_fd, const struct config *config, int tree_fd, const char *path)
{
	struct stat status;
	int point_fd, rc = ACCEPTED;

	if (fstat(tree_fd, &status) < 0)
		return refuse("cannot examine %s on the node: %s", path, strerror(errno));
	point_fd = open_mount_point(jail_fd, config, path, S_ISDIR(status.st_mode));
	if (point_fd < 0)
		return REFUSED;
	if (move_mount(tree_fd, "", point_fd, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		rc = refuse("cannot mount %s%s in the jail: %s", config->jail, path,
			    strerror(errno));
	close_fd(&point_fd);
	return rc;
}

/* Shows a path of the node, with all that is mounted below it, at the same path in the jail. */
static int show(int jail_fd, const struct config *config, const char *path, uint64_t attributes)
{
	int rc = REFUSED;
	int tree_fd = open_tree(AT_FDCWD, path,
				OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);

	if (tree_fd < 0)
		return refuse("cannot bind %s of the node: %s", path, strerror(errno));
	if (restrict_tree(tree_fd, path, attributes) < 0)
		goto out;
	rc = attach(jail_fd, config, tree_fd, path);
out:
	close_fd(&tree_fd);
	return rc;
}

static int mount_private(int jail_fd, const struct config *config, const char *job_name,
			 const struct private_mount *private_mount)
{
	int directory_fd, tree_fd = -1, rc = REFUSED;

	directory_fd = open_job_directory(private_mount->base, job_name, private_mount->name);
	if (directory_fd < 0)
		return REFUSED;
	tree_fd = open_tree(directory_fd, "",
			    OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	if (tree_fd < 0) {
		(void)refuse("cannot bind the job's directory for %s: %s", private_mount->target,
			     strerror(errno));
		goto out;
	}
	if (restrict_tree(tree_fd, private_mount->target,
			  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV) < 0)
		goto out;
	rc = attach(jail_fd, config, tree_fd, private_mount->target);
out:
	close_fd(&tree_fd);
	close_fd(&directory_fd);
	return rc;
}

/* Shown as they are on the node: in a container without `privileged`, a fresh /proc or /sys
 * is refused, and the node's carry the masks and the devpts that belong to them. */
static const char *const kernel_trees[] = {"/proc", "/sys", "/dev"};

static int fill_jail(int jail_fd, const struct config *config, const char *job_name)
{
	const struct private_mount private_mounts[] = {
		{config->scratch, "tmp", "/tmp"},
		{config->scratch, "var_tmp", "/var/tmp"},
		{config->shm, "shm", "/dev/shm"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(kernel_trees); i++)
		if (show(jail_fd, config, kernel_trees[i], 0) < 0)
			return REFUSED;
	for (size_t i = 0; i < config->n_binds; i++) {
		const struct bind *bind = &config->binds[i];
		uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

		if (bind->read_only)
			attributes |= MOUNT_ATTR_RDONLY;
		if (show(jail_fd, config, bind->path, attributes) < 0)
			return REFUSED;
	}
	/* Last, so that no bind= can uncover what belongs to another job. */
	for (size_t i = 0; i < ARRAY_SIZE(private_mounts); i++)
		if (mount_private(jail_fd, config, job_name, &private_mounts[i]) < 0)
			return REFUSED;
	return ACCEPTED;
}

/* Makes the jail the root of this process; nothing of the old root stays mounted. */
static int pivot(int jail_fd, const struct config *config)
{
	if (fchdir(jail_fd) < 0)
		return refuse("cannot enter the jail %s: %s", config->jail, strerror(errno));
	/* The old root ends up on top of the new one, so it needs no directory of its own. */
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return refuse("cannot make %s the root: %s", config->jail, strerror(errno));
	if (umount2(".", MNT_DETACH) < 0)
		return refuse("cannot detach the node's root from the jail %s: %s", config->jail,
			      strerror(errno));
	if (chdir("/") < 0)
		return refuse("cannot enter the root of the jail %s: %s", config->jail,
			      strerror(errno));
	return ACCEPTED;
}

static int enter_jail(const struct config *config, const char *job_name)
{
	int jail_fd = -1, rc = REFUSED;

	if (unshare(CLONE_NEWNS) < 0)
		return refuse("cannot unshare the mount namespace: %s", strerror(errno));
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return refuse("cannot make the mounts below / private: %s", strerror(errno));
	/* Onto itself: pivot_root wants a mount point, and the file systems that the node
	 * has mounted below the jail come along. */
	jail_fd = open_tree(AT_FDCWD, config->jail,
			    OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
	if (jail_fd < 0)
		return refuse("cannot bind the jail %s: %s", config->jail, strerror(errno));
	if (move_mount(jail_fd, "", AT_FDCWD, config->jail, MOVE_MOUNT_F_EMPTY_PATH) < 0) {
		(void)refuse("cannot mount the jail %s onto itself: %s", config->jail,
			     strerror(errno));
		goto out;
	}
	if (fill_jail(jail_fd, config, job_name) < 0)
		goto out;
	rc = pivot(jail_fd, config);
out:
	close_fd(&jail_fd);
	return rc;
}

/* Whether `path` of the node has a mount point of its kind in the jail; mounts nothing. */
static int check_mount_point(int jail_fd, const struct config *config, const char *path)
{
	struct stat status;
	int fd;

	if (stat(path, &status) < 0)
		return refuse("cannot bind %s of the node: %s", path, strerror(errno));
	fd = open_mount_point(jail_fd, config, path, S_ISDIR(status.st_mode));
	if (fd < 0)
		return REFUSED;
	close_fd(&fd);
	return ACCEPTED;
}

/* Whether the jail has all that a step is going to need of it. */
static int check_jail(const struct config *config)
{
	/* Not /dev/shm: that one lies in the node's own /dev. */
	static const char *const private_targets[] = {"/tmp", "/var/tmp"};
	int jail_fd, rc = ACCEPTED;

	jail_fd = open(config->jail, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (jail_fd < 0)
		return refuse("cannot open the jail %s: %s", config->jail, strerror(errno));
	for (size_t i = 0; rc == ACCEPTED && i < ARRAY_SIZE(kernel_trees); i++)
		rc = check_mount_point(jail_fd, config, kernel_trees[i]);
	for (size_t i = 0; rc == ACCEPTED && i < config->n_binds; i++)
		rc = check_mount_point(jail_fd, config, config->binds[i].path);
	for (size_t i = 0; rc == ACCEPTED && i < ARRAY_SIZE(private_targets); i++)
		rc = check_mount_point(jail_fd, config, private_targets[i]);
	close_fd(&jail_fd);
	return rc;
}

/* ---- the end of a job ---- */

/* Makes the names of what is moved differ. */
static unsigned long moves = 0;

/*
 * Empties `directory` by one level: moves what it holds up into `top`, and removes it.
 * Returns 0, or -1 with errno set.
 */
static int dissolve(int top, const char *directory)
{
	char moved[32];
	struct dirent *entry;
	DIR *stream;
	int fd, error = 0;

	fd = openat(top, directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	stream = fdopendir(fd);
	if (stream == NULL) {
		close_fd(&fd);
		return -1;
	}
	while (error == 0 && (errno = 0, entry = readdir(stream)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT)
			continue;
		error = errno;
		while (error == EISDIR || error == EEXIST) {
			(void)snprintf(moved, sizeof(moved), ".removed-%lu", moves++);
			error = renameat2(fd, entry->d_name, top, moved, RENAME_NOREPLACE) < 0
					? errno
					: 0;
		}
	}
	if (error == 0)
		error = errno;
	(void)closedir(stream);
	if (error == 0 && unlinkat(top, directory, AT_REMOVEDIR) < 0)
		error = errno;
	errno = error;
	return error == 0 ? 0 : -1;
}

/*
 * Removes all that the directory `name` below `parent` holds, and the directory itself.
 * It does not descend: a user can nest directories deeper than any stack, path or number
 * of open files goes. Returns 0, or -1 with errno set.
 */
static int remove_tree(int parent, const char *name)
{
	bool found = true;
	struct dirent *entry;
	DIR *stream;
	int fd, error = 0;

	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	stream = fdopendir(fd);
	if (stream == NULL) {
		close_fd(&fd);
		return -1;
	}
	while (error == 0 && found) {
		found = false;
		rewinddir(stream);
		while (error == 0 && (errno = 0, entry = readdir(stream)) != NULL) {
			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
				continue;
			found = true;
			if (unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT)
				continue;
			if (errno != EISDIR || dissolve(fd, entry->d_name) < 0)
				error = errno;
		}
		if (error == 0)
			error = errno;
	}
	(void)closedir(stream);
	if (error == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0)
		error = errno;
	errno = error;
	return error == 0 ? 0 : -1;
}

/* Removes what the job left below `base`, for every user its number ever belonged to. */
static void remove_job_directories(const char *base, uint32_t job_id)
{
	char prefix[JOB_NAME_SIZE];
	struct dirent *entry;
	DIR *stream;
	int base_fd, jobs_fd;

	(void)snprintf(prefix, sizeof(prefix), "%" PRIu32 ".", job_id);
	base_fd = open(base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (base_fd < 0) {
		slurm_error("chroot: cannot open directory %s on the node: %s", base,
			    strerror(errno));
		return;
	}
	jobs_fd = openat(base_fd, JOBS_DIRECTORY,
			 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	stream = jobs_fd < 0 ? NULL : fdopendir(jobs_fd);
	if (stream == NULL) {
		/* No directory: no step has run on this node yet. */
		if (errno != ENOENT)
			slurm_error("chroot: cannot open directory %s below %s: %s",
				    JOBS_DIRECTORY, base, strerror(errno));
		close_fd(&jobs_fd);
		goto out;
	}
	while ((entry = readdir(stream)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		if (remove_tree(jobs_fd, entry->d_name) < 0)
			slurm_error("chroot: cannot remove %s/%s/%s: %s", base, JOBS_DIRECTORY,
				    entry->d_name, strerror(errno));
	}
	(void)closedir(stream);
out:
	close_fd(&base_fd);
}

/* ---- what Slurm calls ---- */

/*
 * In slurmd: a wrong plugstack.conf or an incomplete jail keeps the node from starting, so
 * that few users ever meet it.
 */
int slurm_spank_init(spank_t spank, int ac, char **av)
{
	struct config config;

	(void)spank;
	if (spank_context() != S_CTX_SLURMD)
		return ACCEPTED;
	if (parse_options(&config, ac, av) < 0)
		return REFUSED;
	return check_jail(&config);
}

/*
 * Whether the refusal of a step can wait for slurm_spank_user_init, which comes before any of
 * the user's code and after srun's connection: only from there does the reason reach the
 * user. A refusal here would be "Something is wrong with the boot of the nodes" to srun. It
 * is given nevertheless where nobody listens or Slurm does not tell what kind of step this
 * is: a batch script's output file would be opened on the node, outside the jail.
 */
static bool refusal_can_wait(spank_t spank)
{
	uint32_t step_id;

	return spank_get_item(spank, S_JOB_STEPID, &step_id) == ESPANK_SUCCESS &&
	       step_id != SLURM_BATCH_SCRIPT;
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char **av)
{
	struct config config;
	char job_name[JOB_NAME_SIZE];
	uint32_t job_id;
	uid_t uid;
	int remote = spank_remote(spank);

	if (remote == 0)
		return ACCEPTED;
	if (remote < 0)
		return refuse("Slurm does not say whether this is a step");
	if (parse_options(&config, ac, av) < 0)
		return REFUSED;
	if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS)
		return refuse("Slurm does not tell the job's number");
	if (spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS)
		return refuse("Slurm does not tell the job's user");
	format_job_name(job_name, job_id, uid);
	if (enter_jail(&config, job_name) < 0)
		return refusal_can_wait(spank) ? ACCEPTED : REFUSED;
	inside_jail = true;
	return ACCEPTED;
}

/* No task starts in a step that was refused, whether or not Slurm was told so before. */
static int check_inside(spank_t spank)
{
	if (spank_remote(spank) == 0 || inside_jail)
		return ACCEPTED;
	return refuse("the step is not inside the jail and will not start: %s",
		      refusal[0] != '\0' ? refusal : "the jail was never entered");
}

int slurm_spank_user_init(spank_t spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	return check_inside(spank);
}

int slurm_spank_task_init_privileged(spank_t spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	return check_inside(spank);
}

int slurm_spank_task_init(spank_t spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	return check_inside(spank);
}

/*
 * Removes the job's private directories. What cannot be removed is logged and left: an
 * error here would drain the node for files that only root can reach and that no other
 * user's job will ever be given, and a disk that really fails shows in the node's checks.
 */
int slurm_spank_job_epilog(spank_t spank, int ac, char **av)
{
	struct config config;
	uint32_t job_id;

	if (parse_options(&config, ac, av) < 0)
		return ACCEPTED;
	if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS) {
		slurm_error("chroot: Slurm does not tell the job's number: nothing is removed");
		return ACCEPTED;
	}
	remove_job_directories(config.scratch, job_id);
	remove_job_directories(config.shm, job_id);
	return ACCEPTED;
}

#include "mounts.h"

#include "cgroups.h"
#include "files.h"
#include "report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* In mounts with these attributes, set-user-ID bits have no effect, and devices do not open. */
#define HARMLESS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
/* Size of a uint64_t in decimal, with the final NUL. */
#define NUMBER_SIZE 21
/* Directory in a job's /tmp; mpi.conf names it as SLURM_PMIX_TMPDIR. */
#define PMIX_DIRECTORY ".pmix"

/* ---- mount points in the jail ---- */

/* The open root of a job, and the path of the jail, which messages contain. */
struct jail {
	int fd;
	const char *path;
};

/* Opens a mount point in the jail. Refuses symbolic links in its path. */
static int open_mount_point(const struct jail *jail, const char *path,
			    bool directory)
{
	struct open_how how = {
		/* With O_NOFOLLOW, openat2 would open a symbolic link itself. */
		.flags = O_PATH | O_CLOEXEC | (directory ? O_DIRECTORY : 0),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS,
	};
	const char *kind = directory ? "directory" : "file";
	struct stat status;
	int fd = (int)syscall(SYS_openat2, jail->fd, path, &how, sizeof(how));

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return refuse("mount point %s%s is missing in the jail: create it as a %s: %s",
			      jail->path, path, kind, strerror(errno));
	if (fd < 0 && errno == ELOOP)
		return refuse("mount point %s%s leads through a symbolic link in the jail: make "
			      "it a real %s: %s", jail->path, path, kind, strerror(errno));
	if (fd < 0)
		return refuse("cannot open mount point %s%s in the jail: %s", jail->path, path,
			      strerror(errno));
	if (directory)
		return fd;
	/* open(2) has no flag that excludes directories. */
	if (fstat(fd, &status) < 0)
		(void)refuse("cannot examine mount point %s%s in the jail: %s", jail->path, path,
			     strerror(errno));
	else if (S_ISDIR(status.st_mode))
		(void)refuse("mount point %s%s is a directory in the jail: make it a file: %s",
			     jail->path, path, strerror(EISDIR));
	else
		return fd;
	close_fd(&fd);
	return REFUSED;
}

/* Attaches a detached copy of mounts (a tree, see open_tree(2)) at `path` in the jail. */
static int attach(const struct jail *jail, int tree_fd, const char *path)
{
	struct stat status;
	int point_fd, rc = ACCEPTED;

	if (fstat(tree_fd, &status) < 0)
		return refuse("cannot examine the files to mount on %s: %s", path, strerror(errno));
	point_fd = open_mount_point(jail, path, S_ISDIR(status.st_mode));
	if (point_fd < 0)
		return REFUSED;
	if (move_mount(tree_fd, "", point_fd, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		rc = refuse("cannot mount %s%s in the jail: %s", jail->path, path,
			    strerror(errno));
	close_fd(&point_fd);
	return rc;
}

/* Attaches a tree and closes its descriptor. Returns REFUSED if `tree_fd` is negative. */
static int attach_and_close(const struct jail *jail, int tree_fd,
			    const char *path)
{
	int rc = tree_fd < 0 ? REFUSED : attach(jail, tree_fd, path);

	close_fd(&tree_fd);
	return rc;
}

/* ---- trees to mount ---- */

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

/*
 * Returns a detached copy of `name` below `parent`, or of `parent` itself if `name` is "". Returns
 * REFUSED on failure.
 */
static int copy_tree(int parent, const char *name, unsigned int flags, const char *path,
		     uint64_t attributes)
{
	int fd = open_tree(parent, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags);

	if (fd < 0)
		return refuse("cannot bind-mount %s of the node: %s", path, strerror(errno));
	if (restrict_tree(fd, path, attributes) < 0)
		close_fd(&fd);
	return fd;
}

/* Mounts a path of the node, with all mounts below it, at the same path in the jail. */
static int show(const struct jail *jail, const char *path, uint64_t attributes)
{
	int tree_fd = copy_tree(AT_FDCWD, path, AT_RECURSIVE, path, attributes);

	return attach_and_close(jail, tree_fd, path);
}

struct parameter {
	const char *key;
	const char *value;
};

/* Returns a detached mount of a new file system for `path`; REFUSED on failure. */
static int new_filesystem(const char *type, const struct parameter *parameters, size_t n,
			  const char *path, unsigned int attributes)
{
	int tree_fd = REFUSED;
	int context = fsopen(type, FSOPEN_CLOEXEC);

	if (context < 0)
		return refuse("cannot open a new file system %s for %s: %s", type, path,
			      strerror(errno));
	for (size_t i = 0; i < n; i++)
		if (fsconfig(context, FSCONFIG_SET_STRING, parameters[i].key,
			     parameters[i].value, 0) < 0) {
			(void)refuse("cannot set %s=%s of the file system %s for %s: %s",
				     parameters[i].key, parameters[i].value, type, path,
				     strerror(errno));
			goto out;
		}
	if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
		(void)refuse("cannot create the file system %s for %s: %s", type, path,
			     strerror(errno));
		goto out;
	}
	tree_fd = fsmount(context, FSMOUNT_CLOEXEC, attributes);
	if (tree_fd < 0)
		(void)refuse("cannot mount the file system %s for %s: %s", type, path,
			     strerror(errno));
out:
	close_fd(&context);
	return tree_fd;
}

static int new_tmpfs(uint64_t size, const char *path)
{
	char bytes[NUMBER_SIZE];
	const struct parameter parameters[] = {{"size", bytes}, {"mode", "1777"}};

	(void)snprintf(bytes, sizeof(bytes), "%" PRIu64, size);
	return new_filesystem("tmpfs", parameters, ARRAY_SIZE(parameters), path, HARMLESS);
}

/* ---- /dev ---- */

static const char *const usual_devices[] = {"null", "zero", "full", "random", "urandom", "tty"};

static const struct parameter device_links[] = {
	{"fd", "/proc/self/fd"},
	{"stdin", "/proc/self/fd/0"},
	{"stdout", "/proc/self/fd/1"},
	{"stderr", "/proc/self/fd/2"},
	{"ptmx", "pts/ptmx"},
};

/*
 * Mounts a device, or a directory of devices, in the job's /dev. Skips other files. The names in
 * the node's /dev are safe, because only root can create them.
 */
static int show_device(int node_dev_fd, int dev_fd, const char *name)
{
	struct stat status;
	int tree_fd, file_fd, made, rc = REFUSED;

	/*
	 * A read-only mount still permits writing to the device. However, it prevents sbcast from
	 * changing the owner of the device file.
	 */
	tree_fd = copy_tree(node_dev_fd, name, AT_RECURSIVE | AT_SYMLINK_NOFOLLOW, name,
			    MOUNT_ATTR_RDONLY);
	if (tree_fd < 0)
		return REFUSED;
	if (fstat(tree_fd, &status) < 0) {
		(void)refuse("cannot examine /dev/%s of the node: %s", name, strerror(errno));
		goto out;
	}
	if (S_ISDIR(status.st_mode)) {
		made = mkdirat(dev_fd, name, ROOT_MODE);
	} else if (S_ISCHR(status.st_mode)) {
		file_fd = openat(dev_fd, name, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
		made = file_fd < 0 ? -1 : 0;
		close_fd(&file_fd);
	} else {
		rc = ACCEPTED;
		goto out;
	}
	if (made < 0 && errno == EEXIST)
		/* The device is already mounted: two patterns match it, or it is a usual device. */
		rc = ACCEPTED;
	else if (made < 0)
		(void)refuse("cannot make /dev/%s of the job: %s", name, strerror(errno));
	else if (move_mount(tree_fd, "", dev_fd, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		(void)refuse("cannot mount /dev/%s in the jail: %s", name, strerror(errno));
	else
		rc = ACCEPTED;
out:
	close_fd(&tree_fd);
	return rc;
}

/* Mounts all devices of the node that match the pattern. */
static int show_devices(int node_dev_fd, int dev_fd, const char *pattern)
{
	struct dirent *entry;
	DIR *stream;
	int rc = ACCEPTED;
	int list_fd = openat(node_dev_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	stream = list_fd < 0 ? NULL : fdopendir(list_fd);
	if (stream == NULL) {
		rc = refuse("cannot list /dev of the node for device=%s: %s", pattern,
			    strerror(errno));
		close_fd(&list_fd);
		return rc;
	}
	while (rc == ACCEPTED && (errno = 0, entry = readdir(stream)) != NULL)
		if (fnmatch(pattern, entry->d_name, FNM_PERIOD) == 0)
			rc = show_device(node_dev_fd, dev_fd, entry->d_name);
	if (rc == ACCEPTED && errno != 0)
		rc = refuse("cannot list /dev of the node for device=%s: %s", pattern,
			    strerror(errno));
	(void)closedir(stream);
	return rc;
}

/* Mounts a private devpts for `srun --pty`, so that the job sees no terminals of other users. */
static int make_terminals(int dev_fd)
{
	/* Group 5 is tty in Debian and most other distributions. */
	static const struct parameter parameters[] = {
		{"ptmxmode", "0666"}, {"mode", "0620"}, {"gid", "5"},
	};
	int rc = ACCEPTED;
	int fd = new_filesystem("devpts", parameters, ARRAY_SIZE(parameters), "/dev/pts",
				MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);

	if (fd < 0)
		return REFUSED;
	if (move_mount(fd, "", dev_fd, "pts", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		rc = refuse("cannot mount /dev/pts in the jail: %s", strerror(errno));
	close_fd(&fd);
	return rc;
}

static int fill_dev(int dev_fd, const struct config *config)
{
	static const char *const directories[] = {"pts", "shm"};
	int node_dev_fd, rc = ACCEPTED;

	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		if (mkdirat(dev_fd, directories[i], ROOT_MODE) < 0)
			return refuse("cannot make /dev/%s of the job: %s", directories[i],
				      strerror(errno));
	for (size_t i = 0; i < ARRAY_SIZE(device_links); i++)
		if (symlinkat(device_links[i].value, dev_fd, device_links[i].key) < 0)
			return refuse("cannot make /dev/%s of the job: %s", device_links[i].key,
				      strerror(errno));
	if (make_terminals(dev_fd) < 0)
		return REFUSED;
	node_dev_fd = open("/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (node_dev_fd < 0)
		return refuse("cannot open /dev of the node: %s", strerror(errno));
	for (size_t i = 0; rc == ACCEPTED && i < ARRAY_SIZE(usual_devices); i++)
		rc = show_device(node_dev_fd, dev_fd, usual_devices[i]);
	for (size_t i = 0; rc == ACCEPTED && i < config->devices.n; i++)
		rc = show_devices(node_dev_fd, dev_fd, config->devices.values[i]);
	close_fd(&node_dev_fd);
	return rc;
}

/* Mounts a private /dev with the usual devices and those that match device=. */
static int make_dev(const struct jail *jail, const struct config *config)
{
	static const struct parameter parameters[] = {{"mode", "0755"}, {"size", "64K"}};
	int rc;
	int fd = new_filesystem("tmpfs", parameters, ARRAY_SIZE(parameters), "/dev",
				MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);

	if (fd < 0)
		return REFUSED;
	/* Attach the tree before the devices, because nothing can be mounted in a detached tree. */
	rc = attach(jail, fd, "/dev");
	if (rc == ACCEPTED)
		rc = fill_dev(fd, config);
	close_fd(&fd);
	return rc;
}

/* ---- the job's own directories ---- */

/* A private directory of the job. */
struct private_mount {
	int job_fd;
	const char *base;
	const char *name;
	const char *target;
	/* Size in bytes of the tmpfs that replaces the directory; 0 if there is no tmpfs. */
	uint64_t size;
	bool for_pmix;
};

/* Returns a detached copy of a directory of the job, for `target`; REFUSED on failure. */
static int copy_own_directory(int parent, const char *name, const char *base, mode_t mode,
			      const char *target)
{
	int tree_fd;
	int fd = open_own_directory(parent, name, base, mode);

	if (fd < 0)
		return REFUSED;
	tree_fd = copy_tree(fd, "", AT_EMPTY_PATH, target, HARMLESS);
	close_fd(&fd);
	return tree_fd;
}

static int private_tree(const struct private_mount *private_mount)
{
	if (private_mount->size > 0)
		return new_tmpfs(private_mount->size, private_mount->target);
	return copy_own_directory(private_mount->job_fd, private_mount->name,
				  private_mount->base, TMP_MODE, private_mount->target);
}

/*
 * For each step with MPI, slurmstepd creates a directory as root, and makes the user its owner. The
 * user cannot replace this directory, because root owns its parent directory.
 */
static int make_pmix_directory(int tmp_fd)
{
	int fd = open_own_directory(tmp_fd, PMIX_DIRECTORY, "/tmp", ROOT_MODE);

	if (fd < 0)
		return REFUSED;
	close_fd(&fd);
	return ACCEPTED;
}

static int mount_private(const struct jail *jail, const struct private_mount *private_mount)
{
	int tree_fd = private_tree(private_mount);

	if (tree_fd >= 0 && private_mount->for_pmix && make_pmix_directory(tree_fd) < 0)
		close_fd(&tree_fd);
	return attach_and_close(jail, tree_fd, private_mount->target);
}

static int mount_privates(const struct jail *jail, const struct config *config, int job_fd,
			  const char *job_name)
{
	/* Do not create a directory on the node if /dev/shm is a tmpfs. */
	int shm_fd = config->shm_size > 0 ? -1 : open_job(config->shm, job_name);
	const struct private_mount private_mounts[] = {
		{job_fd, config->scratch, "tmp", "/tmp", config->tmp_size, true},
		{job_fd, config->scratch, "var_tmp", "/var/tmp", config->var_tmp_size, false},
		{shm_fd, config->shm, "shm", "/dev/shm", config->shm_size, false},
	};
	int rc = shm_fd < 0 && config->shm_size == 0 ? REFUSED : ACCEPTED;

	for (size_t i = 0; rc == ACCEPTED && i < ARRAY_SIZE(private_mounts); i++)
		rc = mount_private(jail, &private_mounts[i]);
	close_fd(&shm_fd);
	return rc;
}

/* ---- the root ---- */

/* Returns a detached overlay of the jail and the job's own upper layer; REFUSED on failure. */
static int new_overlay(const struct config *config, int lower_fd, int job_fd)
{
	/* Paths "/proc/self/fd/<number>", because real paths may contain separators of overlayfs. */
	char lower[32], upper[32], work[32];
	const struct parameter parameters[] = {
		{"lowerdir", lower}, {"upperdir", upper}, {"workdir", work},
	};
	int upper_fd, work_fd = -1, fd = REFUSED;

	upper_fd = open_own_directory(job_fd, "upper", config->scratch, ROOT_MODE);
	if (upper_fd >= 0)
		work_fd = open_own_directory(job_fd, "work", config->scratch, PRIVATE_MODE);
	if (work_fd >= 0) {
		(void)snprintf(lower, sizeof(lower), "/proc/self/fd/%d", lower_fd);
		(void)snprintf(upper, sizeof(upper), "/proc/self/fd/%d", upper_fd);
		(void)snprintf(work, sizeof(work), "/proc/self/fd/%d", work_fd);
		fd = new_filesystem("overlay", parameters, ARRAY_SIZE(parameters), config->jail,
				    0);
	}
	close_fd(&work_fd);
	close_fd(&upper_fd);
	return fd;
}

/* Mounts the new root over the jail: pivot_root(2) requires a mount point. */
static int mount_root(const struct config *config, int lower_fd, int job_fd)
{
	int fd;

	if (config->overlay)
		fd = new_overlay(config, lower_fd, job_fd);
	else
		/* AT_RECURSIVE includes file systems that the node has mounted below the jail. */
		fd = copy_tree(AT_FDCWD, config->jail, AT_RECURSIVE, config->jail, 0);
	if (fd < 0)
		return REFUSED;
	if (move_mount(fd, "", AT_FDCWD, config->jail, MOVE_MOUNT_F_EMPTY_PATH) < 0) {
		(void)refuse("cannot mount the jail %s onto itself: %s", config->jail,
			     strerror(errno));
		close_fd(&fd);
	}
	return fd;
}

/* Mounts a shared directory of the jail, such as /home, over the overlay. */
static int show_through(const struct jail *jail, const struct jail *lower, const char *path)
{
	int tree_fd;
	int source_fd = open_mount_point(lower, path, true);

	if (source_fd < 0)
		return REFUSED;
	tree_fd = copy_tree(source_fd, "", AT_EMPTY_PATH | AT_RECURSIVE, path, 0);
	close_fd(&source_fd);
	return attach_and_close(jail, tree_fd, path);
}

static int fill_jail(const struct jail *jail, const struct config *config,
		     const struct jail *lower, int job_fd, const char *job_name)
{
	for (size_t i = 0; i < config->through.n; i++)
		if (show_through(jail, lower, config->through.values[i]) < 0)
			return REFUSED;
	/*
	 * Mount /sys read-only, because root could otherwise write to cgroups. Paths that the container
	 * runtime masks stay masked.
	 */
	if (show(jail, "/sys", MOUNT_ATTR_RDONLY) < 0)
		return REFUSED;
	if ((config->private_dev ? make_dev(jail, config) : show(jail, "/dev", 0)) <
	    0)
		return REFUSED;
	for (size_t i = 0; i < config->n_binds; i++) {
		const struct bind *bind = &config->binds[i];
		uint64_t attributes = HARMLESS | (bind->read_only ? MOUNT_ATTR_RDONLY : 0);

		if (show(jail, bind->path, attributes) < 0)
			return REFUSED;
	}
	/* The spool directory contains the batch script and Slurm's configuration. */
	if (show(jail, config->spool, HARMLESS | MOUNT_ATTR_RDONLY) < 0)
		return REFUSED;
	/* Mount these last, so that no bind= can show files of another job. */
	return mount_privates(jail, config, job_fd, job_name);
}

/* Makes the jail the root of this process. Nothing of the old root stays mounted. */
static int pivot(int jail_fd, const char *path)
{
	if (fchdir(jail_fd) < 0)
		return refuse("cannot enter the jail %s: %s", path, strerror(errno));
	/* With the same directory twice, pivot_root(2) mounts the old root over the new root. */
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return refuse("cannot make %s the root: %s", path, strerror(errno));
	if (umount2(".", MNT_DETACH) < 0)
		return refuse("cannot detach the node's root from the jail %s: %s", path,
			      strerror(errno));
	if (chdir("/") < 0)
		return refuse("cannot enter the root of the jail %s: %s", path,
			      strerror(errno));
	return ACCEPTED;
}

int make_root(const struct config *config, const char *job_name, int *proc_fd)
{
	struct jail lower = {-1, config->jail};
	struct jail jail = {-1, config->jail};
	int job_fd, rc = REFUSED;

	*proc_fd = -1;
	if (unshare(JOB_NAMESPACES) < 0)
		return refuse("cannot unshare the mount and ipc namespaces: %s", strerror(errno));
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return refuse("cannot make the mounts below / private: %s", strerror(errno));
	lower.fd = open(config->jail, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (lower.fd < 0)
		return refuse("cannot open the jail %s: %s", config->jail, strerror(errno));
	/* Open the directory after unshare(2): a directory of another namespace cannot be mounted. */
	job_fd = open_job(config->scratch, job_name);
	if (job_fd >= 0)
		jail.fd = mount_root(config, lower.fd, job_fd);
	if (jail.fd >= 0)
		rc = fill_jail(&jail, config, &lower, job_fd, job_name);
	if (rc == ACCEPTED) {
		*proc_fd = open_mount_point(&jail, "/proc", true);
		rc = *proc_fd < 0 ? REFUSED : ACCEPTED;
	}
	if (rc == ACCEPTED)
		rc = pivot(jail.fd, config->jail);
	if (rc < 0)
		close_fd(proc_fd);
	close_fd(&jail.fd);
	close_fd(&job_fd);
	close_fd(&lower.fd);
	return rc;
}

/* ---- /proc ---- */

/* Makes an entry of the mounted /proc read-only. Skips an entry that the kernel lacks. */
static int protect(int proc_fd, const char *name)
{
	int rc = ACCEPTED;
	int tree_fd = open_tree(proc_fd, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
						       AT_RECURSIVE | AT_SYMLINK_NOFOLLOW);

	if (tree_fd < 0 && errno == ENOENT)
		return ACCEPTED;
	if (tree_fd < 0)
		return refuse("cannot bind-mount /proc/%s of the job: %s", name, strerror(errno));
	if (restrict_tree(tree_fd, "/proc", MOUNT_ATTR_RDONLY) < 0)
		rc = REFUSED;
	else if (move_mount(tree_fd, "", proc_fd, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		rc = refuse("cannot mount /proc/%s in the jail: %s", name, strerror(errno));
	close_fd(&tree_fd);
	return rc;
}

int mount_proc(int point_fd, uid_t uid)
{
	/*
	 * Names in /proc that belong to the machine and not to the job. By writing to some of these
	 * files, root can make the kernel run programs, even without capabilities.
	 */
	static const char *const of_the_machine[] = {
		"acpi", "bus", "fs", "irq", "scsi", "sys", "sysrq-trigger",
	};
	int rc = ACCEPTED;
	int fd = new_filesystem("proc", NULL, 0, "/proc",
				HARMLESS | MOUNT_ATTR_NOEXEC);

	if (fd < 0)
		return REFUSED;
	if (move_mount(fd, "", point_fd, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		rc = refuse("cannot mount /proc in the jail: %s", strerror(errno));
	for (size_t i = 0; uid == 0 && rc == ACCEPTED && i < ARRAY_SIZE(of_the_machine); i++)
		rc = protect(fd, of_the_machine[i]);
	close_fd(&fd);
	return rc;
}

/* ---- the mounts of slurmstepd itself ---- */

static int copy_spool_of_node(const struct config *config)
{
	return copy_tree(AT_FDCWD, config->spool, AT_RECURSIVE, config->spool, HARMLESS);
}

int copy_own_trees(const struct config *config, int job_fd, uid_t uid, struct own_trees *trees)
{
	trees->node_spool = trees->node_proc = trees->cgroups = -1;
	trees->spool = uid == 0 ? copy_own_directory(job_fd, "spool", config->scratch, ROOT_MODE,
						     config->spool)
				: copy_spool_of_node(config);
	if (trees->spool >= 0)
		trees->node_spool = copy_spool_of_node(config);
	if (trees->node_spool >= 0)
		trees->node_proc = copy_tree(AT_FDCWD, "/proc", AT_RECURSIVE, "/proc", 0);
	if (trees->node_proc >= 0)
		trees->cgroups = copy_tree(AT_FDCWD, CGROUPS, AT_RECURSIVE, CGROUPS, 0);
	if (trees->cgroups >= 0)
		return ACCEPTED;
	close_own_trees(trees);
	return REFUSED;
}

void close_own_trees(struct own_trees *trees)
{
	close_fd(&trees->spool);
	close_fd(&trees->node_spool);
	close_fd(&trees->node_proc);
	close_fd(&trees->cgroups);
}

/* Attaches a detached tree below this process's root, which is the job's, and closes the tree. */
static int attach_in_root(int *tree_fd, const char *path)
{
	struct jail root = {open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), ""};
	int rc;

	if (root.fd < 0)
		rc = refuse("cannot open the root of the job: %s", strerror(errno));
	else
		rc = attach(&root, *tree_fd, path);
	close_fd(&root.fd);
	close_fd(tree_fd);
	return rc;
}

static int hide_proc(void)
{
	static const struct parameter parameters[] = {{"mode", "0555"}, {"size", "4K"}};
	int fd = new_filesystem("tmpfs", parameters, ARRAY_SIZE(parameters), "/proc",
				HARMLESS | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY);

	return fd < 0 ? REFUSED : attach_in_root(&fd, "/proc");
}

int enter_own_view(const struct config *config, struct own_trees *trees)
{
	if (unshare(CLONE_NEWNS) < 0)
		return refuse("cannot unshare the mount namespace of the job: %s",
			      strerror(errno));
	if (attach_in_root(&trees->spool, config->spool) < 0 ||
	    attach_in_root(&trees->cgroups, CGROUPS) < 0)
		return REFUSED;
	return hide_proc();
}

int return_to_node(const struct config *config, struct own_trees *trees)
{
	/*
	 * Mount the node's trees in a new namespace: a task can reach the old one through an open
	 * directory, such as its standard input.
	 */
	if (unshare(CLONE_NEWNS) < 0)
		return refuse("cannot unshare the mount namespace of slurmstepd: %s",
			      strerror(errno));
	if (attach_in_root(&trees->node_spool, config->spool) < 0)
		return REFUSED;
	return attach_in_root(&trees->node_proc, "/proc");
}

/* ---- when slurmd starts ---- */

/* Checks that the jail has a mount point of the right type for a path of the node. */
static int check_mount_point(const struct jail *jail, const char *path)
{
	struct stat status;
	int fd;

	if (stat(path, &status) < 0)
		return refuse("cannot bind-mount %s of the node: %s", path, strerror(errno));
	fd = open_mount_point(jail, path, S_ISDIR(status.st_mode));
	if (fd < 0)
		return REFUSED;
	close_fd(&fd);
	return ACCEPTED;
}

static int check_directory(const struct jail *jail, const char *path)
{
	int fd = open_mount_point(jail, path, true);

	if (fd < 0)
		return REFUSED;
	close_fd(&fd);
	return ACCEPTED;
}

int check_jail(const struct config *config)
{
	/* /dev/shm is not listed, because the file system mounted on /dev contains it. */
	static const char *const directories[] = {"/proc", "/sys", "/dev", "/tmp", "/var/tmp"};
	struct jail jail = {-1, config->jail};
	int rc = ACCEPTED;

	jail.fd = open(config->jail, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (jail.fd < 0)
		return refuse("cannot open the jail %s: %s", config->jail, strerror(errno));
	for (size_t i = 0; rc == ACCEPTED && i < ARRAY_SIZE(directories); i++)
		rc = check_directory(&jail, directories[i]);
	for (size_t i = 0; rc == ACCEPTED && i < config->through.n; i++)
		rc = check_directory(&jail, config->through.values[i]);
	for (size_t i = 0; rc == ACCEPTED && i < config->n_binds; i++)
		rc = check_mount_point(&jail, config->binds[i].path);
	if (rc == ACCEPTED)
		rc = check_mount_point(&jail, config->spool);
	close_fd(&jail.fd);
	return rc;
}

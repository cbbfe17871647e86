#include "root.h"

#include "fail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DIRECTORY_MODE 0755
#define FILE_MODE 0644
#define ATTEMPTS 1000

/* ---- namespaces ---- */

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	size_t length = strlen(text);

	if (fd < 0 || write(fd, text, length) != (ssize_t)length)
		fail("cannot write %s: %s", path, strerror(errno));
	(void)close(fd);
}

static void map(const char *path, unsigned int inside, unsigned int outside)
{
	char *line = format_text("%u %u 1\n", inside, outside);

	write_file(path, line);
	free(line);
}

static void start_loopback(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		fail("cannot start the container's loopback interface: %s: "
		     "contact the cluster operator", strerror(errno));
	(void)close(fd);
}

void make_namespaces(uid_t uid, gid_t gid, int kinds)
{
	const uid_t own_uid = geteuid();
	const gid_t own_gid = getegid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | kinds) < 0)
		fail("cannot create a user namespace: %s: allow user namespaces on the node with the "
		     "sysctls user.max_user_namespaces and "
		     "kernel.apparmor_restrict_unprivileged_userns", strerror(errno));
	/* The kernel requires this line before an unprivileged process maps a group. */
	write_file("/proc/self/setgroups", "deny");
	map("/proc/self/uid_map", uid, own_uid);
	map("/proc/self/gid_map", gid, own_gid);
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		fail("cannot keep the container's mounts private: %s: contact the cluster operator",
		     strerror(errno));
	if ((kinds & CLONE_NEWNET) != 0)
		start_loopback();
}

/* ---- paths below the root ---- */

int open_below(int root_fd, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned int)(flags | O_CLOEXEC),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};

	/* Retry: openat2(2) returns EAGAIN if another process renames or mounts at the same time. */
	for (int attempt = 0;; attempt++) {
		int fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

		if (fd >= 0 || errno != EAGAIN || attempt == ATTEMPTS)
			return fd;
	}
}

/* Creates a file or directory. Replaces a broken link, such as Ubuntu's /etc/resolv.conf. */
static int make_entry(int parent_fd, const char *name, bool directory)
{
	for (int attempt = 0; attempt < 2; attempt++) {
		int rc = directory ? mkdirat(parent_fd, name, DIRECTORY_MODE)
				   : mknodat(parent_fd, name, S_IFREG | FILE_MODE, 0);

		if (rc == 0)
			return 0;
		if (errno != EEXIST || unlinkat(parent_fd, name, 0) < 0)
			return -1;
	}
	return -1;
}

/* Opens a mount point. Creates the mount point and its parents if the image lacks them. */
static int open_target(int root_fd, const char *path, bool directory)
{
	char *copy = format_text("%s", path), *end = copy;
	int parent_fd = open_below(root_fd, ".", O_PATH | O_DIRECTORY);
	struct stat status;

	while (parent_fd >= 0) {
		char *name = end + strspn(end, "/"), rest;
		bool last;
		int fd;

		end = name + strcspn(name, "/");
		last = end[strspn(end, "/")] == '\0';
		rest = *end;
		*end = '\0';
		fd = open_below(root_fd, copy, O_PATH | (last ? 0 : O_DIRECTORY));
		if (fd < 0 && errno == ENOENT && name[0] != '\0' &&
		    make_entry(parent_fd, name, directory || !last) == 0)
			fd = openat(parent_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		*end = rest;
		(void)close(parent_fd);
		parent_fd = fd;
		if (last)
			break;
	}
	if (parent_fd < 0)
		fail("cannot create the mount point %s in the container: %s", path,
		     strerror(errno));
	if (fstat(parent_fd, &status) < 0 || S_ISDIR(status.st_mode) != directory)
		fail("cannot mount a %s on %s in the container: the mount point is %s: "
		     "use another path or image",
		     directory ? "directory" : "file", path,
		     directory ? "not a directory" : "a directory");
	free(copy);
	return parent_fd;
}

/* ---- trees ---- */

static bool is_directory(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
}

static void restrict_tree(int fd, const char *path, uint64_t attributes, bool recursive)
{
	struct mount_attr attr = {.attr_set = attributes};

	if (attributes != 0 && mount_setattr(fd, "", AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0),
					     &attr, sizeof(attr)) < 0)
		fail("cannot set flags of the mount %s: %s", path, strerror(errno));
}

/*
 * Returns a detached copy of the mounts at a path outside the container. On failure, returns -1 and
 * sets errno.
 */
static int copy_tree(const char *path, bool recursive)
{
	return open_tree(AT_FDCWD, path,
			 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (recursive ? AT_RECURSIVE : 0));
}

static void attach(int root_fd, int tree_fd, const char *target)
{
	int target_fd = open_target(root_fd, target, is_directory(tree_fd));

	if (move_mount(tree_fd, "", target_fd, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		fail("cannot mount %s in the container: %s", target, strerror(errno));
	(void)close(target_fd);
	(void)close(tree_fd);
}

static void set_parameter(int context, const char *type, const char *key, const char *value)
{
	if (value != NULL && fsconfig(context, FSCONFIG_SET_STRING, key, value, 0) < 0)
		fail("cannot set %s=%s of a file system %s for the container: %s", key, value,
		     type, strerror(errno));
}

static int open_filesystem(const char *type)
{
	int context = fsopen(type, FSOPEN_CLOEXEC);

	if (context < 0)
		fail("cannot open a file system %s for the container: %s", type, strerror(errno));
	return context;
}

static int mount_filesystem(int context, const char *type, uint64_t attributes)
{
	int fd = fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0
			 ? -1
			 : fsmount(context, FSMOUNT_CLOEXEC, (unsigned int)attributes);

	/*
	 * If the image directory contains a mount point, the overlay would show the files that this
	 * mount hides. The kernel therefore refuses the directory with EINVAL.
	 */
	if (fd < 0 && errno == EINVAL && strcmp(type, "overlay") == 0)
		fail("cannot mount the image: %s: an image directory must not contain "
		     "mount points: use another directory", strerror(errno));
	if (fd < 0)
		fail("cannot mount a file system %s for the container: %s", type, strerror(errno));
	(void)close(context);
	return fd;
}

static int new_tmpfs(const char *size, const char *mode, uint64_t attributes)
{
	int context = open_filesystem("tmpfs");

	set_parameter(context, "tmpfs", "size", size);
	set_parameter(context, "tmpfs", "mode", mode);
	return mount_filesystem(context, "tmpfs", attributes);
}

/* ---- the image ---- */

/* Returns a path of an open directory, for functions that accept only paths. */
static char *path_of(int fd)
{
	return format_text("/proc/self/fd/%d", fd);
}

/* Opens a directory in this mount namespace, as overlayfs requires. */
static int open_directory(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		fail("cannot open the container's directory %s: %s: "
		     "start the job again", path, strerror(errno));
	return fd;
}

static int open_part(const struct root *root, const char *name)
{
	char *path = format_text("%s/%s", root->container, name);
	int fd;

	if (mkdir(path, DIRECTORY_MODE) < 0 && errno != EEXIST)
		fail("cannot make the container's directory %s: %s: "
		     "check the free space of /tmp in the job", path, strerror(errno));
	fd = open_directory(path);
	free(path);
	return fd;
}

/* Mounts the image with a writable layer. */
static int mount_image(const struct root *root)
{
	int lower_fd = open_directory(root->image);
	int upper_fd = open_part(root, "upper"), work_fd = open_part(root, "work");
	char *lower = path_of(lower_fd), *upper = path_of(upper_fd), *work = path_of(work_fd);
	int context = open_filesystem("overlay"), fd;

	set_parameter(context, "overlay", "lowerdir", lower);
	set_parameter(context, "overlay", "upperdir", upper);
	set_parameter(context, "overlay", "workdir", work);
	if (fsconfig(context, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) < 0)
		fail("cannot mount the image as a user, which requires Linux 5.11 or later: %s",
		     strerror(errno));
	fd = mount_filesystem(context, "overlay", 0);
	(void)close(lower_fd);
	(void)close(upper_fd);
	(void)close(work_fd);
	free(lower);
	free(upper);
	free(work);
	return fd;
}

/* ---- the whole root ---- */

void show(struct root *root, struct shown shown)
{
	if (root->n_shown == MAX_SHOWN)
		fail("more than %d paths to mount in the container: contact the cluster operator",
		     MAX_SHOWN);
	if (shown.target == NULL)
		shown.target = shown.path;
	root->shown[root->n_shown++] = shown;
}

static int copy_shown(const struct shown *shown)
{
	int fd = copy_tree(shown->path, true);

	if (fd < 0 && !(shown->optional && (errno == ENOENT || errno == ENOTDIR)))
		fail("cannot bind-mount %s in the container: %s", shown->path, strerror(errno));
	if (fd >= 0)
		restrict_tree(fd, shown->target, shown->read_only ? MOUNT_ATTR_RDONLY : 0, true);
	return fd;
}

/* Returns a copy of the mounts to attach; -1 if there is nothing to mount. */
static int copy_wanted(const struct wanted_mount *wanted)
{
	int fd;

	if (wanted->kind == UMOUNT)
		return -1;
	if (wanted->kind == TMPFS)
		return new_tmpfs(wanted->size, wanted->mode, wanted->attributes);
	fd = copy_tree(wanted->source, wanted->recursive);
	if (fd < 0 && wanted->optional)
		return -1;
	if (fd < 0)
		fail("--container-mounts: cannot mount %s: %s: "
		     "check that the path exists on the node", wanted->source, strerror(errno));
	restrict_tree(fd, wanted->target, wanted->attributes, wanted->recursive);
	return fd;
}

static bool is_there(int root_fd, const char *path)
{
	int fd = open_below(root_fd, path, O_PATH);

	if (fd >= 0)
		(void)close(fd);
	return fd >= 0;
}

static void unmount(int root_fd, const char *target)
{
	char *path;
	int fd = open_below(root_fd, target, O_PATH);

	if (fd < 0)
		fail("--container-mounts: cannot open %s to unmount it: %s: check the path",
		     target, strerror(errno));
	path = path_of(fd);
	if (umount2(path, MNT_DETACH) < 0)
		fail("--container-mounts: cannot unmount %s: %s: "
		     "check that the path is a mount point", target, strerror(errno));
	free(path);
	(void)close(fd);
}

static void pivot(int root_fd, const char *directory)
{
	int directory_fd = open_target(root_fd, directory, true);

	/* With the same directory twice, pivot_root(2) mounts the old root over the new root. */
	if (fchdir(root_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0 || fchdir(directory_fd) < 0)
		fail("cannot make the image the root: %s: contact the cluster operator",
		     strerror(errno));
	(void)close(directory_fd);
}

void enter_root(const struct root *root, const char *directory)
{
	int shown_fds[MAX_SHOWN], wanted_fds[MAX_MOUNTS], point_fd, root_fd;

	/* Copy the trees first: a later copy of /tmp would include the root, which is below /tmp. */
	for (size_t i = 0; i < root->n_shown; i++)
		shown_fds[i] = copy_shown(&root->shown[i]);
	for (size_t i = 0; i < root->wanted->n; i++)
		wanted_fds[i] = copy_wanted(&root->wanted->mounts[i]);

	root_fd = mount_image(root);
	point_fd = open_part(root, "root");
	if (move_mount(root_fd, "", point_fd, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		fail("cannot mount the container's root: %s: contact the cluster operator",
		     strerror(errno));
	(void)close(point_fd);
	for (size_t i = 0; i < root->n_shown; i++)
		if (shown_fds[i] >= 0 &&
		    !(root->shown[i].if_missing && is_there(root_fd, root->shown[i].target)))
			attach(root_fd, shown_fds[i], root->shown[i].target);
	for (size_t i = 0; i < root->wanted->n; i++) {
		const struct wanted_mount *wanted = &root->wanted->mounts[i];

		if (wanted->kind == UMOUNT)
			unmount(root_fd, wanted->target);
		else if (wanted_fds[i] >= 0)
			attach(root_fd, wanted_fds[i], wanted->target);
	}
	pivot(root_fd, directory);
	(void)close(root_fd);
}

void make_root_read_only(void)
{
	int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		fail("cannot open the container's root: %s: contact the cluster operator",
		     strerror(errno));
	restrict_tree(fd, "/", MOUNT_ATTR_RDONLY, false);
	(void)close(fd);
}

void hide_directory(const char *path)
{
	const unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;

	if (mount("tmpfs", path, "tmpfs", flags, "mode=0755") < 0 && errno != ENOENT &&
	    errno != ENOTDIR)
		fail("cannot hide %s in the container: %s: contact the cluster operator",
		     path, strerror(errno));
}

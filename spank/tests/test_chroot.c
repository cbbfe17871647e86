/*
 * Tests of the plugins chroot.c and job_container.c. This file includes their sources. The
 * functions of Slurm and the system calls are fakes, which record all calls in order. A test can
 * make any call fail. Only the removal of the directories of ended jobs runs on real files.
 */
#include "tests/checks.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <fnmatch.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

#define MAX_CALLS 1024
#define MAX_FDS 256
#define FIRST_FD 1000
#define KEEPER 4711
#define NAME_SIZE (PATH_MAX + 64)

/* ---- the fake node ---- */

static struct {
	/* Values that Slurm returns. */
	int remote;
	spank_context_t context;
	uint32_t job_id;
	uid_t uid;
	bool has_step_id;
	uint32_t step_id;
	bool no_job_id, no_uid;
	/* State of the node. */
	uid_t directory_owner;
	mode_t directory_mode;
	bool directories_exist;
	/*
	 * Pids that hold the lock of the keeper's file, one for each query; 0 if no process holds
	 * it.
	 */
	pid_t holders[4];
	size_t n_holders;
	bool lock_file_exists;
	/* Number of waits so far. The keeper's lock file appears after lock_file_after waits. */
	size_t n_waits, lock_file_after;
	/* Entries of a listed directory, which is /dev or the spool directory. */
	const char *devices[8];
	size_t next_device;
	const char *node_file;
	size_t node_file_read;
	uid_t node_file_owner;
	mode_t node_file_mode;
	/* Text that the keeper reports at its start. */
	const char *report;
	size_t report_length;
	/* True: clone() returns in the child, which is the keeper. */
	bool is_keeper;
	bool processes_go_on;
	const char *missing_point, *linked_point, *directory_point;
	/* Number of the call that fails, from 1, and its errno; 0 if no call fails. */
	size_t fail_at;
	int fail_with;
	/* True: file calls reach the real system, where all files seem to belong to root. */
	bool real_files;
	const char *unremovable;
	/* True: fork() returns in the parent. False: fork() fails. */
	bool forks;
	bool not_preloaded;
	/* Text of /proc/sys/kernel/pid_max; a large number by default. */
	const char *machine_limit;
	/* Text of the job's pids.current. */
	const char *used;
	/* Version of the writable cgroups. */
	enum { CGROUPS_V2, CGROUPS_V1, NO_CGROUPS } cgroups;

	void (*before)(void), (*in_parent)(void), (*in_child)(void);
	uint32_t effective, permitted;
	int exit_code;
	jmp_buf end;
	char sent_to_parent[NAME_SIZE];

	char calls[MAX_CALLS][NAME_SIZE];
	size_t n_calls;
	char failed_about[NAME_SIZE];
	char names[MAX_FDS][NAME_SIZE];
	bool is_open[MAX_FDS];
	int n_fds;
	char errors[8 * PATH_MAX];
	char logged[8 * PATH_MAX];
	unsigned int n_errors;
} node;

static void reset_node(void)
{
	memset(&node, 0, sizeof(node));
	node.remote = 1;
	node.context = S_CTX_REMOTE;
	node.job_id = 123;
	node.uid = 2000;
	node.directory_mode = 0700;
	node.node_file_mode = 0644;
	node.has_step_id = true;
	node.report = "";
	node.report_length = 1;
	node.exit_code = -1;
	node.fail_with = EIO;
	node.used = "1000\n";
}

/* Records a call; `subject` must be in its error message. Returns true if the call must fail. */
__attribute__((format(printf, 2, 3))) static bool called(const char *subject,
							  const char *format, ...)
{
	va_list args;

	if (node.n_calls == MAX_CALLS)
		abort();
	va_start(args, format);
	(void)vsnprintf(node.calls[node.n_calls++], NAME_SIZE, format, args);
	va_end(args);
	if (node.n_calls != node.fail_at)
		return false;
	(void)snprintf(node.failed_about, NAME_SIZE, "%s", subject);
	errno = node.fail_with;
	return true;
}

static int new_fd(const char *name)
{
	if (node.n_fds == MAX_FDS)
		abort();
	(void)snprintf(node.names[node.n_fds], NAME_SIZE, "%s", name);
	node.is_open[node.n_fds] = true;
	return FIRST_FD + node.n_fds++;
}

static const char *name_of(int fd)
{
	if (fd == AT_FDCWD)
		return "cwd";
	if (fd < FIRST_FD || fd >= FIRST_FD + node.n_fds || !node.is_open[fd - FIRST_FD])
		return "a descriptor that is not open";
	return node.names[fd - FIRST_FD];
}

static int open_descriptors(void)
{
	int count = 0;

	for (int i = 0; i < node.n_fds; i++)
		count += node.is_open[i];
	return count;
}

static bool is_file(const char *path)
{
	const char *hosts = strstr(path, "/etc/hosts");

	return hosts != NULL && strcmp(hosts, "/etc/hosts") == 0;
}

/* Whether a cgroup exists and is writable; sets errno if not. */
static bool has_group(const char *path)
{
	bool of_version_2 =
		strstr(path, "/system") != NULL || strstr(path, "cgroup/slurmstepd/") != NULL;

	errno = of_version_2 ? ENOENT : EROFS;
	return node.cgroups == (of_version_2 ? CGROUPS_V2 : CGROUPS_V1);
}

static int fake_open(const char *path, int flags)
{
	if (node.real_files)
		return open(path, flags);
	if (called(path, "open %s", path))
		return -1;
	if (strncmp(path, "/sys/fs/cgroup/", strlen("/sys/fs/cgroup/")) == 0 && !has_group(path))
		return -1;
	if (node.node_file == NULL && strcmp(path, "/etc/node.conf") == 0) {
		errno = ENOENT;
		return -1;
	}
	return new_fd(path);
}

static int fake_openat(int parent, const char *name, int flags, mode_t mode)
{
	char path[2 * NAME_SIZE];

	if (node.real_files)
		return openat(parent, name, flags, mode);
	(void)snprintf(path, sizeof(path), "%s/%s", name_of(parent), name);
	CHECK(strcmp(name, ".") == 0 || (flags & (O_NOFOLLOW | O_EXCL)) != 0);
	CHECK((flags & O_CLOEXEC) != 0);
	if (called(strcmp(name, ".") == 0 ? "" : name, "openat %s%s", path, (flags & O_CREAT) != 0 ? " new" : ""))
		return -1;
	if (strcmp(name, "keeper") == 0 && (flags & O_CREAT) == 0 && !node.lock_file_exists) {
		errno = ENOENT;
		return -1;
	}
	return new_fd(path);
}

static int fake_mkdirat(int parent, const char *name, mode_t mode)
{
	if (called(name, "mkdirat %s/%s %04o", name_of(parent), name, (unsigned int)mode))
		return -1;
	if (!node.directories_exist)
		return 0;
	errno = EEXIST;
	return -1;
}

/* The plugin uses mkdir(2) only for cgroups. */
static int fake_mkdir(const char *path)
{
	if (called(path, "mkdir %s", path))
		return -1;
	return has_group(path) ? 0 : -1;
}

static int fake_fchmod(int fd, mode_t mode)
{
	if (node.real_files)
		return fchmod(fd, mode);
	return called("", "fchmod %s %04o", name_of(fd), (unsigned int)mode) ? -1 : 0;
}

/* Called only for real directories. Changes nothing, because tests may run without root. */
static int fake_fchown(int fd, uid_t uid)
{
	struct stat status;

	CHECK(node.real_files && uid == 0);
	return fstat(fd, &status) < 0 ? -1 : 0;
}

static mode_t type_of(const char *path)
{
	static const char *const files[] = {"/null", "/zero", "/full", "/random", "/urandom",
					    "/tty", "/nvidia0", "/nvidiactl"};
	const char *name = strrchr(path, '/');

	if (is_file(path))
		return S_IFREG;
	for (size_t i = 0; name != NULL && i < sizeof(files) / sizeof(files[0]); i++)
		if (strncmp(path, "/dev/", 5) == 0 && strcmp(name, files[i]) == 0)
			return S_IFCHR;
	return strcmp(path, "/dev/nvidia-link") == 0 ? S_IFLNK : S_IFDIR;
}

static int fake_fstat(int fd, struct stat *status)
{
	const char *path = name_of(fd);

	if (called("", "fstat %s", path))
		return -1;
	memset(status, 0, sizeof(*status));
	status->st_uid = node.directory_owner;
	status->st_mode = type_of(path);
	status->st_mode |= S_ISDIR(status->st_mode) ? node.directory_mode : (mode_t)0644;
	if (strcmp(path, "/etc/node.conf") == 0) {
		status->st_uid = node.node_file_owner;
		status->st_mode = S_IFREG | node.node_file_mode;
	}
	if (node.directory_point != NULL && strcmp(path, node.directory_point) == 0)
		status->st_mode = S_IFDIR | 0755;
	return 0;
}

static int fake_stat(const char *path, struct stat *status)
{
	if (called(path, "stat %s", path))
		return -1;
	memset(status, 0, sizeof(*status));
	status->st_mode = is_file(path) ? (mode_t)(S_IFREG | 0644) : (mode_t)(S_IFDIR | 0755);
	return 0;
}

static int fake_close(int fd)
{
	if (node.real_files)
		return close(fd);
	/* The keeper's files have descriptors below 3. */
	CHECK(fd < 3 || strcmp(name_of(fd), "a descriptor that is not open") != 0);
	if (fd >= FIRST_FD && fd < FIRST_FD + node.n_fds)
		node.is_open[fd - FIRST_FD] = false;
	return 0;
}

static int fake_unshare(int flags)
{
	return called("", "unshare %s",
		      flags == CLONE_NEWNS ? "mounts"
		      : flags == (CLONE_NEWNS | CLONE_NEWIPC) ? "mounts and ipc"
		      : flags == CLONE_FS  ? "root"
					   : "?") ? -1 : 0;
}

static int fake_mount(const char *source, const char *target, const char *type,
		      unsigned long flags, const void *data)
{
	CHECK(source == NULL && type == NULL && data == NULL);
	return called(target, "mount %s %s", target,
		      flags == (MS_REC | MS_PRIVATE) ? "rprivate" : "?") ? -1 : 0;
}

static int fake_umount2(const char *target, int flags)
{
	return called("", "umount2 %s %s", target, flags == MNT_DETACH ? "detach" : "?") ? -1 : 0;
}

static int fake_open_tree(int fd, const char *path, unsigned int flags)
{
	char below[2 * NAME_SIZE];
	const char *name = path;

	if ((flags & AT_EMPTY_PATH) != 0) {
		name = name_of(fd);
	} else if (fd != AT_FDCWD) {
		CHECK((flags & AT_SYMLINK_NOFOLLOW) != 0);
		(void)snprintf(below, sizeof(below), "%s/%s", name_of(fd), path);
		name = below;
	}
	CHECK((flags & (OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)) ==
	      (OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
	if (called(path, "open_tree %s%s", name, (flags & AT_RECURSIVE) != 0 ? " recursive" : ""))
		return -1;
	if (strcmp(path, "acpi") == 0) {
		errno = ENOENT;
		return -1;
	}
	return new_fd(name);
}

static int fake_mount_setattr(int fd, const char *path, unsigned int flags,
			      struct mount_attr *attr, size_t size)
{
	CHECK(path[0] == '\0' && size == sizeof(*attr));
	CHECK(flags == (AT_EMPTY_PATH | AT_RECURSIVE));
	return called("", "mount_setattr %s%s%s%s", name_of(fd),
		      (attr->attr_set & MOUNT_ATTR_RDONLY) != 0 ? " ro" : "",
		      (attr->attr_set & MOUNT_ATTR_NOSUID) != 0 ? " nosuid" : "",
		      (attr->attr_set & MOUNT_ATTR_NODEV) != 0 ? " nodev" : "") ? -1 : 0;
}

static int fake_move_mount(int from, const char *from_path, int to, const char *to_path,
			   unsigned int flags)
{
	const char *target = (flags & MOVE_MOUNT_T_EMPTY_PATH) != 0 ? name_of(to) : to_path;
	char below[2 * NAME_SIZE];

	if (to != AT_FDCWD && (flags & MOVE_MOUNT_T_EMPTY_PATH) == 0) {
		(void)snprintf(below, sizeof(below), "%s/%s", name_of(to), to_path);
		target = below;
	}

	CHECK(from_path[0] == '\0' && (flags & MOVE_MOUNT_F_EMPTY_PATH) != 0);
	/* The subject is only the last part: messages contain the path in the jail. */
	return called(strrchr(target, '/') == NULL ? "" : strrchr(target, '/'), "move_mount %s on %s", name_of(from), target) ? -1 : 0;
}

static int fake_fchdir(int fd)
{
	return called("", "fchdir %s", name_of(fd)) ? -1 : 0;
}

static int fake_chdir(const char *path)
{
	return called("", "chdir %s", path) ? -1 : 0;
}

static int fake_openat2(int parent, const char *path, const struct open_how *how)
{
	char name[2 * NAME_SIZE];

	CHECK(how->resolve == (RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS));
	CHECK((how->flags & (O_PATH | O_CLOEXEC)) == (O_PATH | O_CLOEXEC));
	CHECK(((how->flags & O_DIRECTORY) != 0) == !is_file(path));
	(void)snprintf(name, sizeof(name), "%s%s", name_of(parent), path);
	if (called(path, "openat2 %s", name))
		return -1;
	if (node.missing_point != NULL && strcmp(path, node.missing_point) == 0) {
		errno = ENOENT;
		return -1;
	}
	if (node.linked_point != NULL && strcmp(path, node.linked_point) == 0) {
		errno = ELOOP;
		return -1;
	}
	return new_fd(name);
}

static int fake_fsopen(const char *type, unsigned int flags)
{
	CHECK(flags == FSOPEN_CLOEXEC);
	return called(type, "fsopen %s", type) ? -1 : new_fd(type);
}

static int fake_fsconfig(int fd, unsigned int command, const char *key, const char *value)
{
	const char *type = name_of(fd);

	if (command == FSCONFIG_CMD_CREATE)
		return called(type, "create %s", type) ? -1 : 0;
	CHECK(command == FSCONFIG_SET_STRING);
	/* The numbers of descriptors do not matter. */
	if (strncmp(value, "/proc/self/fd/", 14) == 0)
		value = name_of(atoi(value + 14));
	return called(type, "fsconfig %s %s=%s", type, key, value) ? -1 : 0;
}

static int fake_fsmount(int fd, unsigned int flags, unsigned int attributes)
{
	char name[NAME_SIZE];

	CHECK(flags == FSMOUNT_CLOEXEC);
	(void)snprintf(name, sizeof(name), "new %.64s", name_of(fd));
	CHECK(strcmp(name_of(fd), "overlay") == 0 || (attributes & MOUNT_ATTR_NOSUID) != 0);
	return called(name_of(fd), "fsmount %s", name_of(fd)) ? -1 : new_fd(name);
}

static int fake_symlinkat(const char *target, int fd, const char *name)
{
	return called(name, "symlinkat %s/%s %s", name_of(fd), name, target) ? -1 : 0;
}

/* Lists `node.devices`, or a real directory. */
static DIR *fake_fdopendir(int fd)
{
	if (node.real_files)
		return fdopendir(fd);
	if (called("", "list %s", name_of(fd)))
		return NULL;
	node.next_device = 0;
	node.is_open[fd - FIRST_FD] = false;
	return (DIR *)(void *)&node;
}

static struct dirent *fake_readdir(DIR *stream)
{
	static struct dirent entry;

	if (node.real_files)
		return readdir(stream);
	if (called("", "readdir") || node.devices[node.next_device] == NULL)
		return NULL;
	(void)snprintf(entry.d_name, sizeof(entry.d_name), "%s",
		       node.devices[node.next_device++]);
	return &entry;
}

static int fake_closedir(DIR *stream)
{
	return node.real_files ? closedir(stream) : 0;
}

/* Each file in the fake spool directory is a socket. */
static int fake_fstatat(int fd, const char *name, struct stat *status)
{
	if (called(name, "fstatat %s/%s", name_of(fd), name))
		return -1;
	memset(status, 0, sizeof(*status));
	status->st_mode = S_IFSOCK | 0777;
	return 0;
}

static int fake_fchmodat(int fd, const char *name, mode_t mode)
{
	return called(name, "fchmodat %s/%s %04o", name_of(fd), name, (unsigned int)mode) ? -1 : 0;
}

static int fake_fchownat(int fd, const char *name, uid_t uid)
{
	return called(name, "fchownat %s/%s %u", name_of(fd), name, (unsigned int)uid) ? -1 : 0;
}

static const char *kind_of(int kinds)
{
	return kinds == CLONE_NEWNS		       ? "mounts"
	       : kinds == (CLONE_NEWNS | CLONE_NEWIPC) ? "mounts and ipc"
	       : kinds == CLONE_NEWPID		       ? "pids"
						       : "?";
}

static int fake_setns(int fd, int kinds)
{
	/* The kernel also requires CAP_SYS_ADMIN. */
	CHECK((node.effective & (1U << CAP_SYS_ADMIN)) != 0);
	return called(kinds == CLONE_NEWPID ? "pid namespace" : "namespace", "setns %s %s", name_of(fd), kind_of(kinds)) ? -1 : 0;
}

static int fake_flock(int fd, int operation)
{
	if (node.real_files)
		return flock(fd, operation);
	if (operation == LOCK_UN)
		return 0;
	CHECK(operation == LOCK_EX);
	return called("", "flock %s", name_of(fd)) ? -1 : 0;
}

static int fake_fcntl(int fd, int command, struct flock *lock)
{
	CHECK(lock->l_type == F_WRLCK);
	if (node.real_files)
		return fcntl(fd, command, lock);
	if (command == F_SETLK)
		return called("", "lock %d", fd) ? -1 : 0;
	CHECK(command == F_GETLK);
	if (called("", "holder of %s", name_of(fd)))
		return -1;
	lock->l_pid = node.holders[node.n_holders++];
	if (lock->l_pid == 0)
		lock->l_type = F_UNLCK;
	return 0;
}

static int fake_pipe2(int ends[2], int flags)
{
	CHECK(flags == O_CLOEXEC);
	if (called("", "pipe2"))
		return -1;
	ends[0] = new_fd("pipe");
	ends[1] = new_fd("pipe");
	return 0;
}

/* /proc/self/cgroup of slurmstepd after Slurm has made the step's cgroups. */
static const char *const own_groups[] = {
	[CGROUPS_V2] = "0::/system.slice/cpu-0_slurmstepd.scope/job_123/step_0/slurm\n",
	[CGROUPS_V1] = "12:pids:/docker/a\n"
		       "9:memory:/docker/a/slurm_cpu-0/uid_7/job_123/step_0\n0::/system.slice/a\n",
	[NO_CGROUPS] = "9:memory:/docker/a\n0::/\n",
};

static ssize_t fake_read(int fd, void *buffer, size_t size)
{
	const char *from = node.report;
	size_t length = node.report_length;

	if (called("", "read %s", name_of(fd)))
		return -1;
	if (strcmp(name_of(fd), "pipe") == 0) {
		node.report += length;
		node.report_length = 0;
	} else if (strcmp(name_of(fd), "/proc/self/cgroup") == 0) {
		from = own_groups[node.cgroups];
		length = strlen(from);
	} else if (strstr(name_of(fd), "/pids.") != NULL) {
		from = strstr(name_of(fd), "/pids.max") != NULL ? "1000\n" : node.used;
		length = strlen(from);
	} else if (strcmp(name_of(fd), "/proc/sys/kernel/pid_max") == 0) {
		from = node.machine_limit == NULL ? "4194304\n" : node.machine_limit;
		length = strlen(from);
	} else {
		from = node.node_file + node.node_file_read;
		length = strlen(from);
		if (length > 1000)
			length = 1000; /* a file may come in pieces */
		node.node_file_read += length;
	}
	CHECK(length <= size);
	memcpy(buffer, from, length);
	return (ssize_t)length;
}

static ssize_t fake_write(int fd, const void *buffer, size_t size)
{
	CHECK(size <= NAME_SIZE && ((const char *)buffer)[size - 1] == '\0');
	memcpy(node.sent_to_parent, buffer, size);
	return called("", "write %d", fd) ? -1 : (ssize_t)size;
}

__attribute__((format(printf, 2, 3))) static int fake_dprintf(int fd, const char *format, ...)
{
	const char *name = name_of(fd);
	size_t used = strlen(node.logged);
	char text[8 * PATH_MAX];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (strcmp(name, "/proc/4711/fd/2") != 0)
		return called("", "write %s to %s", text, name) ? -1 : 0;
	(void)snprintf(node.logged + used, sizeof(node.logged) - used, "%s", text);
	return 0;
}

static int fake_dup2(int from, int to)
{
	return called("", "dup2 %s %d", name_of(from), to) ? -1 : to;
}

static int fake_close_range(unsigned int first, unsigned int last, int flags)
{
	CHECK(last == ~0U && flags == 0);
	return called("", "close_range %u", first) ? -1 : 0;
}

static int fake_sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	CHECK(how == SIG_SETMASK && sigismember(set, SIGTERM) == 1 && old == NULL);
	return called("", "block signals") ? -1 : 0;
}

static int fake_sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
	CHECK(number == SIGCHLD && action->sa_handler == SIG_IGN && old == NULL);
	return called("", "ignore children") ? -1 : 0;
}

static pid_t fake_setsid(void)
{
	return called("", "setsid") ? -1 : 1;
}

__attribute__((noreturn)) static int fake_pause(void)
{
	longjmp(node.end, 1);
}

__attribute__((noreturn)) static void fake_exit(int code)
{
	node.exit_code = code;
	longjmp(node.end, 1);
}

static pid_t fake_fork(void)
{
	errno = EAGAIN;
	return node.forks ? 1 : -1;
}

static int fake_kill(pid_t pid, int number)
{
	CHECK(pid == KEEPER && number == SIGKILL);
	return 0;
}

static int fake_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	CHECK(n <= 1 && timeout > 0);
	if (n == 0) {
		node.lock_file_exists |= ++node.n_waits == node.lock_file_after;
		return 0;
	}
	if (node.real_files)
		return poll(fds, n, timeout);
	if (called("", "poll %s", name_of(fds[0].fd)))
		return -1;
	return node.processes_go_on ? 0 : 1;
}

static int fake_prctl(int option, unsigned long value)
{
	if (option == PR_SET_DUMPABLE && value == 0)
		return called("", "not dumpable") ? -1 : 0;
	CHECK(option == PR_SET_NO_NEW_PRIVS && value == 1);
	return called("", "no new privileges") ? -1 : 0;
}

static char *fake_getcwd(char *buffer, size_t size)
{
	if (called("", "getcwd"))
		return NULL;
	(void)snprintf(buffer, size, "/home/researcher");
	return buffer;
}

static int fake_pthread_atfork(void (*before)(void), void (*in_parent)(void),
			       void (*in_child)(void))
{
	node.before = before;
	node.in_parent = in_parent;
	node.in_child = in_child;
	return 0;
}

static int fake_pidfd_open(pid_t pid)
{
	char name[NAME_SIZE];

	(void)snprintf(name, sizeof(name), "process %s", pid == KEEPER ? "keeper" : "itself");
	return called("", "pidfd_open %s", name) ? -1 : new_fd(name);
}

static int fake_capset(const struct __user_cap_data_struct *data)
{
	uint32_t was = node.effective;
	bool for_good = (node.permitted & ~data[0].permitted) != 0;

	CHECK((data[0].permitted & ~node.permitted) == 0 &&
	      (data[0].effective & ~data[0].permitted) == 0);
	node.permitted = data[0].permitted;
	node.effective = data[0].effective;
	return called("", "capset %s",
		      for_good ? "for good" : node.effective > was ? "up" : "down") ? -1 : 0;
}

static long fake_syscall(long number, ...)
{
	va_list args;
	long rc = -1;

	va_start(args, number);
	if (number == SYS_openat2) {
		int parent = va_arg(args, int);
		const char *path = va_arg(args, const char *);
		const struct open_how *how = va_arg(args, const struct open_how *);

		CHECK(va_arg(args, size_t) == sizeof(*how));
		rc = fake_openat2(parent, path, how);
	} else if (number == SYS_pivot_root) {
		const char *new_root = va_arg(args, const char *);
		const char *put_old = va_arg(args, const char *);

		rc = called("", "pivot_root %s %s", new_root, put_old) ? -1 : 0;
	} else if (number == SYS_pidfd_open) {
		pid_t pid = va_arg(args, pid_t);

		rc = node.real_files ? syscall(SYS_pidfd_open, pid, 0) : fake_pidfd_open(pid);
	} else if (number == SYS_pidfd_send_signal) {
		int fd = va_arg(args, int);

		CHECK(va_arg(args, int) == SIGKILL);
		if (node.real_files)
			rc = syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
		else
			rc = called("", "kill %s", name_of(fd)) ? -1 : 0;
	} else if (number == SYS_clone) {
		bool pids = (va_arg(args, unsigned long) & CLONE_NEWPID) != 0;

		rc = called("", "clone%s", pids ? " pids" : "") ? -1 : node.is_keeper ? 0 : KEEPER;
	} else if (number == SYS_capget) {
		struct __user_cap_data_struct *data;

		(void)va_arg(args, void *);
		data = va_arg(args, struct __user_cap_data_struct *);
		memset(data, 0, 2 * sizeof(*data));
		data[0].effective = node.effective;
		data[0].permitted = node.permitted;
		rc = called("", "capget") ? -1 : 0;
	} else if (number == SYS_capset) {
		(void)va_arg(args, void *);
		rc = fake_capset(va_arg(args, struct __user_cap_data_struct *));
	} else if (number == SYS_seccomp) {
		rc = called("", "seccomp") ? -1 : 0;
	} else {
		abort();
	}
	va_end(args);
	return rc;
}

static void *fake_dlsym(void)
{
	static bool flag;

	return node.not_preloaded ? NULL : &flag;
}

static int fake_unlinkat(int parent, const char *name, int flags)
{
	if (node.unremovable != NULL && strcmp(name, node.unremovable) == 0) {
		errno = EBUSY;
		return -1;
	}
	return unlinkat(parent, name, flags);
}

int spank_remote(spank_t spank)
{
	(void)spank;
	return node.remote;
}

spank_context_t spank_context(void)
{
	return node.context;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	spank_err_t rc = ESPANK_SUCCESS;
	va_list args;

	(void)spank;
	va_start(args, item);
	if (item == S_JOB_ID && !node.no_job_id)
		*va_arg(args, uint32_t *) = node.job_id;
	else if (item == S_JOB_UID && !node.no_uid)
		*va_arg(args, uid_t *) = node.uid;
	else if (item == S_JOB_STEPID && node.has_step_id)
		*va_arg(args, uint32_t *) = node.step_id;
	else
		rc = ESPANK_NOT_AVAIL;
	va_end(args);
	return rc;
}

void slurm_error(const char *format, ...)
{
	size_t used = strlen(node.errors);
	va_list args;

	va_start(args, format);
	(void)vsnprintf(node.errors + used, sizeof(node.errors) - used, format, args);
	va_end(args);
	used = strlen(node.errors);
	(void)snprintf(node.errors + used, sizeof(node.errors) - used, "\n");
	node.n_errors++;
}

/* Macros with arguments leave names such as `struct stat` unchanged. */
#define open(path, flags) fake_open(path, flags)
#define OPENAT(parent, name, flags, mode, ...) fake_openat(parent, name, flags, mode)
#define openat(...) OPENAT(__VA_ARGS__, 0, 0)
#define mkdir(path, mode) fake_mkdir(path)
#define mkdirat(parent, name, mode) fake_mkdirat(parent, name, mode)
#define fstatat(fd, name, status, flags) fake_fstatat(fd, name, status)
#define fchmodat(fd, name, mode, flags) fake_fchmodat(fd, name, mode)
#define fchownat(fd, name, uid, gid, flags) fake_fchownat(fd, name, uid)
#define symlinkat(target, parent, name) fake_symlinkat(target, parent, name)
#define fchmod(fd, mode) fake_fchmod(fd, mode)
#define fchown(fd, uid, gid) fake_fchown(fd, uid)
#define fstat(fd, status) fake_fstat(fd, status)
#define stat(path, status) fake_stat(path, status)
#define close(fd) fake_close(fd)
#define fdopendir(fd) fake_fdopendir(fd)
#define readdir(stream) fake_readdir(stream)
#define closedir(stream) fake_closedir(stream)
#define unshare(flags) fake_unshare(flags)
#define setns(fd, kinds) fake_setns(fd, kinds)
#define mount(source, target, type, flags, data) fake_mount(source, target, type, flags, data)
#define umount2(target, flags) fake_umount2(target, flags)
#define open_tree(fd, path, flags) fake_open_tree(fd, path, flags)
#define mount_setattr(fd, path, flags, attr, size) fake_mount_setattr(fd, path, flags, attr, size)
#define move_mount(from, name, to, to_name, flags) fake_move_mount(from, name, to, to_name, flags)
#define fsopen(type, flags) fake_fsopen(type, flags)
#define fsconfig(fd, command, key, value, aux) fake_fsconfig(fd, command, key, value)
#define fsmount(fd, flags, attributes) fake_fsmount(fd, flags, attributes)
#define fchdir(fd) fake_fchdir(fd)
#define chdir(path) fake_chdir(path)
#define getcwd(buffer, size) fake_getcwd(buffer, size)
#define flock(fd, operation) fake_flock(fd, operation)
#define fcntl(fd, command, lock) fake_fcntl(fd, command, lock)
#define geteuid() node.uid
#define pipe2(ends, flags) fake_pipe2(ends, flags)
#define read(fd, buffer, size) fake_read(fd, buffer, size)
#define write(fd, buffer, size) fake_write(fd, buffer, size)
#define dprintf(...) fake_dprintf(__VA_ARGS__)
#define dup2(from, to) fake_dup2(from, to)
#define close_range(first, last, flags) fake_close_range(first, last, flags)
#define sigprocmask(how, set, old) fake_sigprocmask(how, set, old)
#define sigaction(number, action, old) fake_sigaction(number, action, old)
#define setsid() fake_setsid()
#define pause() fake_pause()
#define _exit(code) fake_exit(code)
#define fork() fake_fork()
#define getppid() KEEPER
#define kill(pid, number) fake_kill(pid, number)
#define waitpid(pid, status, options) (pid)
#define poll(fds, n, timeout) fake_poll(fds, n, timeout)
#define prctl(option, value, ...) fake_prctl(option, (unsigned long)(value))
#define pthread_atfork(before, parent, child) fake_pthread_atfork(before, parent, child)
#define syscall(...) fake_syscall(__VA_ARGS__)
#define unlinkat(parent, name, flags) fake_unlinkat(parent, name, flags)
#define dlsym(handle, name) fake_dlsym()

#include "report.c"
#include "capabilities.c"
#include "cgroups.c"
#include "options.c"
#include "files.c"
#include "mounts.c"
#include "keeper.c"
#include "chroot.c"
/* Both plugins define these names, which Slurm looks up, so rename those of one plugin. */
#define plugin_name job_container_name
#define plugin_type job_container_type
#define plugin_version job_container_version
#include "job_container.c"

#undef plugin_name
#undef plugin_type
#undef plugin_version
#undef open
#undef OPENAT
#undef openat
#undef mkdir
#undef mkdirat
#undef symlinkat
#undef fchmod
#undef fchown
#undef fstat
#undef stat
#undef close
#undef fdopendir
#undef readdir
#undef closedir
#undef unshare
#undef setns
#undef mount
#undef umount2
#undef open_tree
#undef mount_setattr
#undef move_mount
#undef fsopen
#undef fsconfig
#undef fsmount
#undef fchdir
#undef chdir
#undef getcwd
#undef flock
#undef fcntl
#undef geteuid
#undef pipe2
#undef read
#undef write
#undef dprintf
#undef dup2
#undef close_range
#undef sigprocmask
#undef sigaction
#undef setsid
#undef pause
#undef _exit
#undef fork
#undef getppid
#undef kill
#undef waitpid
#undef poll
#undef prctl
#undef fstatat
#undef fchmodat
#undef fchownat
#undef pthread_atfork
#undef syscall
#undef unlinkat
#undef dlsym

/* ---- helpers ---- */

static char *usual_options[] = {
	"jail=/mnt/jail", "scratch=/scratch", "spool=/spool", "bind=/run/munge",
	"bind_ro=/etc/hosts",
};
#define USUAL (int)ARRAY_SIZE(usual_options), usual_options

static char *isolating_options[] = {
	"jail=/mnt/jail", "scratch=/scratch", "spool=/spool", "bind=/run/munge",
	"bind_ro=/etc/hosts", "no_new_privs=yes", "private_dev=yes", "device=nvidia*",
	"overlay=yes", "through=/home", "tmp_size=1G", "var_tmp_size=512M", "shm_size=64K",
	"processes=1000", "steps=3", "node_steps=5",
};
#define ISOLATING (int)ARRAY_SIZE(isolating_options), isolating_options

/* Resets all state, as for a new slurmstepd on a new node. */
static void restart(void)
{
	reset_node();
	node.effective = 1U << CAP_SYS_ADMIN;
	node.permitted = 1U << CAP_SYS_ADMIN | 1U << CAP_SYS_PTRACE | 1U << CAP_SETUID;
	in_slurmd = inside_jail = forks_into_job = fork_is_inside = in_job = refuse_silently = false;
	keeper_fd = own_fd = limits_fd = processes_fd = step_group_fd = -1;
	own_trees = (struct own_trees){-1, -1, -1, -1};
	(void)unsetenv("SLURMSTACK_SLURMD");
	(void)setenv("NODE_NAME", "cpu-0", 1);
	refusal[0] = '\0';
}

static int start_step(void)
{
	return slurm_spank_init_post_opt(NULL, USUAL);
}

static int enter_isolated(void)
{
	node.devices[0] = "nvidia0";
	node.devices[1] = "sda";
	node.devices[2] = "nvidia-caps";
	node.devices[3] = "nvidia-link";
	return slurm_spank_init_post_opt(NULL, ISOLATING);
}

static int enter_limited_on_version_1(void)
{
	node.cgroups = CGROUPS_V1;
	return enter_isolated();
}

/* Starts a later step of the job. */
static int join(void)
{
	node.lock_file_exists = true;
	node.holders[0] = node.holders[1] = KEEPER;
	return slurm_spank_init_post_opt(NULL, USUAL);
}

/* Forks in slurmstepd with the user's effective uid. Continues in the child or in the parent. */
static void fork_task(bool in_child)
{
	uint32_t effective = node.effective;

	node.effective = 0;
	node.before();
	if (in_child)
		node.in_child();
	else
		node.in_parent();
	CHECK(node.effective == 0);
	node.effective = effective;
}

static bool error_contains(const char *text)
{
	return strstr(node.errors, text) != NULL;
}

static bool every_later_callback_refuses(void)
{
	return slurm_spank_user_init(NULL, USUAL) < 0 &&
	       slurm_spank_task_init_privileged(NULL, USUAL) < 0 &&
	       slurm_spank_task_init(NULL, USUAL) < 0;
}

static bool tasks_start(void)
{
	if (slurm_spank_user_init(NULL, USUAL) < 0 || setjmp(node.end) != 0)
		return false;
	fork_task(true);
	return slurm_spank_task_init_privileged(NULL, USUAL) == 0 &&
	       slurm_spank_task_init(NULL, USUAL) == 0;
}

/* Checks that the step is refused with a reason, starts nothing, and leaves no file open. */
static void check_refused(int rc, const char *reason)
{
	CHECK(rc < 0);
	CHECK(error_contains("chroot: "));
	CHECK(error_contains(reason));
	CHECK(open_descriptors() == 0);
	CHECK(every_later_callback_refuses());
	CHECK(node.before == NULL);
	for (size_t i = 0; i < node.n_calls; i++)
		CHECK(node.fail_at != 0 || strncmp(node.calls[i], "pivot_root", 10) != 0);
}

/* Compares `n` calls with `expected`, beginning with the first call that equals `from`. */
static void check_calls(const char *from, const char *const *expected, size_t n)
{
	size_t start = 0;

	while (start < node.n_calls && strcmp(node.calls[start], from) != 0)
		start++;
	CHECK(start + n <= node.n_calls);
	for (size_t i = 0; i < n && start + i < node.n_calls; i++)
		if (strcmp(node.calls[start + i], expected[i]) != 0) {
			printf("call %zu: %s, expected %s\n", i, node.calls[start + i],
			       expected[i]);
			failures_in_test++;
		}
}

static bool called_with(const char *call)
{
	for (size_t i = 0; i < node.n_calls; i++)
		if (strcmp(node.calls[i], call) == 0)
			return true;
	return false;
}

static void check_option_refused(char *option, const char *reason)
{
	char *options[] = {"jail=/mnt/jail", "scratch=/scratch", "spool=/spool", option};

	restart();
	check_refused(slurm_spank_init_post_opt(NULL, 4, options), reason);
	CHECK(node.n_calls == 0);
}

/* ---- entering the jail ---- */

#define OWN_DIRECTORY(parent, name)                                                        \
	"mkdirat " parent "/" name " 0700", "openat " parent "/" name, "fstat " parent "/" name
#define JOB "/scratch/slurm-jobs/123.2000"
#define JOB_OF_ROOT "/scratch/slurm-jobs/123.0"
#define OPEN_JOB                                                                           \
	"open /scratch", OWN_DIRECTORY("/scratch", "slurm-jobs"),                           \
		OWN_DIRECTORY("/scratch/slurm-jobs", "123.2000")
#define SHOW(path)                                                                         \
	"open_tree " path " recursive", "fstat " path, "openat2 /mnt/jail" path,            \
		"move_mount " path " on /mnt/jail" path
#define SHOW_READ_ONLY(path)                                                               \
	"open_tree " path " recursive", "mount_setattr " path " ro", "fstat " path,          \
		"openat2 /mnt/jail" path, "move_mount " path " on /mnt/jail" path
#define COPY(path) "open_tree " path " recursive", "mount_setattr " path " nosuid nodev"
#define MOUNT_IN_ROOT(path)                                                                \
	"open /", "fstat " path, "openat2 /" path, "move_mount " path " on /" path
#define NODE_GROUP CGROUPS "/system/cgroup.procs"
/* Calls that copy slurmstepd's own trees, and calls that enter its own view. */
#define OWN_TREES                                                                          \
	COPY("/spool"), COPY("/spool"), "open_tree /proc recursive",                        \
		"open_tree " CGROUPS " recursive"
#define HIDE_PROC                                                                          \
	"fsopen tmpfs", "fsconfig tmpfs mode=0555", "fsconfig tmpfs size=4K",               \
		"create tmpfs", "fsmount tmpfs", "open /", "fstat new tmpfs",               \
		"openat2 //proc", "move_mount new tmpfs on //proc"
#define OWN_VIEW                                                                           \
	"unshare mounts", MOUNT_IN_ROOT("/spool"), MOUNT_IN_ROOT(CGROUPS), HIDE_PROC
#define RETURN_TO_NODE "unshare mounts", MOUNT_IN_ROOT("/spool"), MOUNT_IN_ROOT("/proc")
/* Expected calls if the spool directory has no socket of the step. */
#define LOOK_FOR_SOCKET "open /spool", "openat /spool/.", "list /spool/.", "readdir"

static void first_step_creates_the_root_and_keeper_of_the_job(void)
{
	static const char *const expected[] = {
		LOOK_FOR_SOCKET,
		OPEN_JOB,
		"pidfd_open process itself",
		OWN_TREES,
		"flock " JOB,
		"openat " JOB "/keeper",
		"open " NODE_GROUP,
		"unshare mounts and ipc",
		"mount / rprivate",
		"open /mnt/jail",
		OPEN_JOB,
		"open_tree /mnt/jail recursive",
		"move_mount /mnt/jail on /mnt/jail",
		SHOW_READ_ONLY("/sys"),
		SHOW("/dev"),
		"open_tree /run/munge recursive",
		"mount_setattr /run/munge nosuid nodev",
		"fstat /run/munge",
		"openat2 /mnt/jail/run/munge",
		"move_mount /run/munge on /mnt/jail/run/munge",
		"open_tree /etc/hosts recursive",
		"mount_setattr /etc/hosts ro nosuid nodev",
		"fstat /etc/hosts",
		"openat2 /mnt/jail/etc/hosts",
		"fstat /mnt/jail/etc/hosts",
		"move_mount /etc/hosts on /mnt/jail/etc/hosts",
		"open_tree /spool recursive",
		"mount_setattr /spool ro nosuid nodev",
		"fstat /spool",
		"openat2 /mnt/jail/spool",
		"move_mount /spool on /mnt/jail/spool",
		"open /dev/shm",
		OWN_DIRECTORY("/dev/shm", "slurm-jobs"),
		OWN_DIRECTORY("/dev/shm/slurm-jobs", "123.2000"),
		OWN_DIRECTORY(JOB, "tmp"),
		"fchmod " JOB "/tmp 1777",
		"open_tree " JOB "/tmp",
		"mount_setattr " JOB "/tmp nosuid nodev",
		OWN_DIRECTORY(JOB "/tmp", ".pmix"),
		"fchmod " JOB "/tmp/.pmix 0755",
		"fstat " JOB "/tmp",
		"openat2 /mnt/jail/tmp",
		"move_mount " JOB "/tmp on /mnt/jail/tmp",
		OWN_DIRECTORY(JOB, "var_tmp"),
		"fchmod " JOB "/var_tmp 1777",
		"open_tree " JOB "/var_tmp",
		"mount_setattr " JOB "/var_tmp nosuid nodev",
		"fstat " JOB "/var_tmp",
		"openat2 /mnt/jail/var/tmp",
		"move_mount " JOB "/var_tmp on /mnt/jail/var/tmp",
		OWN_DIRECTORY("/dev/shm/slurm-jobs/123.2000", "shm"),
		"fchmod /dev/shm/slurm-jobs/123.2000/shm 1777",
		"open_tree /dev/shm/slurm-jobs/123.2000/shm",
		"mount_setattr /dev/shm/slurm-jobs/123.2000/shm nosuid nodev",
		"fstat /dev/shm/slurm-jobs/123.2000/shm",
		"openat2 /mnt/jail/dev/shm",
		"move_mount /dev/shm/slurm-jobs/123.2000/shm on /mnt/jail/dev/shm",
		"openat2 /mnt/jail/proc",
		"fchdir /mnt/jail",
		"pivot_root . .",
		"umount2 . detach",
		"chdir /",
		"openat " JOB "/keeper new",
		"pipe2",
		"clone pids",
		"write 4711 to " NODE_GROUP,
		"read pipe",
		"pidfd_open process keeper",
		OWN_VIEW,
	};

	CHECK(start_step() == 0);
	CHECK(node.n_calls == ARRAY_SIZE(expected));
	check_calls(expected[0], expected, ARRAY_SIZE(expected));
	CHECK(node.n_errors == 0);
	/* pidfds of the keeper and of slurmstepd; trees of the node's spool directory and /proc. */
	CHECK(open_descriptors() == 4);
	CHECK(tasks_start());
	CHECK(open_descriptors() == 2);
}

static void later_step_joins_the_namespaces_of_the_first_step(void)
{
	static const char *const expected[] = {
		LOOK_FOR_SOCKET,
		OPEN_JOB,
		"pidfd_open process itself",
		OWN_TREES,
		"flock " JOB,
		"openat " JOB "/keeper",
		"holder of " JOB "/keeper",
		"pidfd_open process keeper",
		"holder of " JOB "/keeper",
		"unshare root",
		"setns process keeper mounts and ipc",
		OWN_VIEW,
	};

	CHECK(join() == 0);
	CHECK(node.n_calls == ARRAY_SIZE(expected));
	check_calls(expected[0], expected, ARRAY_SIZE(expected));
	CHECK(open_descriptors() == 4);
	CHECK(tasks_start());
}

static void only_the_jobs_user_can_connect_to_the_step_socket(void)
{
	static const char *const expected[] = {
		"readdir",
		"readdir",
		"fstatat /spool/cpu-0_123.5",
		"fchmodat /spool/cpu-0_123.5 0600",
		"fchownat /spool/cpu-0_123.5 2000",
		"readdir",
		"fstatat /spool/cpu-0_123.5.1",
		"fchmodat /spool/cpu-0_123.5.1 0600",
		"fchownat /spool/cpu-0_123.5.1 2000",
		"readdir",
		"readdir",
	};

	node.step_id = 5;
	node.devices[0] = "cpu-0_123.51";
	node.devices[1] = "cpu-0_123.5";
	node.devices[2] = "cpu-0_123.5.1";
	node.devices[3] = "conf-cache";
	CHECK(join() == 0);
	check_calls("readdir", expected, ARRAY_SIZE(expected));
}

static void number_of_steps_in_a_job_is_limited(void)
{
	static const char *const sockets[] = {
		"cpu-0_123.0", "cpu-0_123.4294967295", "cpu-0_124.0", "hwloc_topo_123.7.xml",
		"cpu-0_123.7.1", "cpu-0_123.8",
	};

	memcpy(node.devices, sockets, 5 * sizeof(*sockets));
	CHECK(slurm_spank_init_post_opt(NULL, ISOLATING) == 0);
	restart();
	memcpy(node.devices, sockets, sizeof(sockets));
	check_refused(slurm_spank_init_post_opt(NULL, ISOLATING),
		      "the job has reached its limit of 3 steps");
}

static void number_of_steps_on_a_node_is_limited(void)
{
	static const char *const sockets[] = {
		"cpu-0_123.0", "cpu-0_124.0", "hwloc_topo_123.7.xml", "cpu-0_125.0.1", "cpu-0_126.8",
		"cpu-0_127.4294967295", "cpu-0_128.0",
	};

	memcpy(node.devices, sockets, 6 * sizeof(*sockets));
	CHECK(slurm_spank_init_post_opt(NULL, ISOLATING) == 0);
	restart();
	memcpy(node.devices, sockets, sizeof(sockets));
	check_refused(slurm_spank_init_post_opt(NULL, ISOLATING),
		      "all jobs together have reached the limit of 5 steps");
	restart();
	memcpy(node.devices, sockets, sizeof(sockets));
	node.step_id = SLURM_BATCH_SCRIPT;
	CHECK(slurm_spank_init_post_opt(NULL, ISOLATING) == 0);
}

static void step_without_an_id_is_refused(void)
{
	node.has_step_id = false;
	check_refused(start_step(), "Slurm does not provide the step's id");
}

static void proc_is_empty_while_slurmstepd_opens_user_paths(void)
{
	static const char *const expected[] = {
		"capget", "capset up", RETURN_TO_NODE, "capset down",
	};

	CHECK(join() == 0);
	CHECK(!called_with("move_mount /proc on //proc"));
	node.n_calls = 0;
	node.effective = 0;
	CHECK(slurm_spank_user_init(NULL, USUAL) == 0);
	CHECK(node.n_calls == ARRAY_SIZE(expected));
	check_calls(expected[0], expected, ARRAY_SIZE(expected));
	CHECK(node.effective == 0);
}

static void slurmstepd_returns_to_the_node_if_files_cannot_be_opened(void)
{
	CHECK(join() == 0);
	CHECK(slurm_spank_exit(NULL, USUAL) == 0);
	CHECK(called_with("move_mount /proc on //proc"));
	CHECK(open_descriptors() == 2);
	node.n_calls = 0;
	CHECK(slurm_spank_exit(NULL, USUAL) == 0);
	CHECK(node.n_calls == 0);
}

static void external_step_returns_to_the_node_at_once(void)
{
	node.has_step_id = true;
	node.step_id = SLURM_EXTERN_CONT;
	CHECK(join() == 0);
	CHECK(called_with("move_mount /proc on //proc"));
	CHECK(open_descriptors() == 2);
}

/* Root can write to every visible path: only missing capabilities protect kernel and keeper. */
static void step_of_root_gets_its_own_spool_and_few_capabilities(void)
{
	static const char *const expected[] = {
		"pidfd_open process itself",
		OWN_DIRECTORY(JOB_OF_ROOT, "spool"),
		"fchmod " JOB_OF_ROOT "/spool 0755",
		"open_tree " JOB_OF_ROOT "/spool",
		"mount_setattr " JOB_OF_ROOT "/spool nosuid nodev",
		COPY("/spool"),
		"open_tree /proc recursive",
	};
	static const char *const in_view[] = {
		"unshare mounts", "open /", "fstat " JOB_OF_ROOT "/spool", "openat2 //spool",
		"move_mount " JOB_OF_ROOT "/spool on //spool", MOUNT_IN_ROOT(CGROUPS), HIDE_PROC,
		"capget", "capset down",
	};

	node.uid = 0;
	CHECK(join() == 0);
	check_calls(expected[0], expected, ARRAY_SIZE(expected));
	check_calls(in_view[0], in_view, ARRAY_SIZE(in_view));
	CHECK(node.effective == 0);
	CHECK(slurm_spank_user_init(NULL, USUAL) == 0);
	CHECK(called_with("move_mount /spool on //spool"));
	CHECK(node.effective == node.permitted);
}

static void keeper_that_ends_before_pidfd_open_is_looked_up_again(void)
{
	node.holders[2] = node.holders[3] = KEEPER;
	node.lock_file_exists = true;
	node.holders[0] = KEEPER;
	node.holders[1] = 0;
	CHECK(slurm_spank_init_post_opt(NULL, USUAL) == 0);
	CHECK(called_with("setns process keeper mounts and ipc"));
}

static void keeper_that_has_ended_is_replaced(void)
{
	node.lock_file_exists = true;
	CHECK(start_step() == 0);
	CHECK(called_with("clone pids"));
	CHECK(open_descriptors() == 4);
}

static void overlay_shares_only_the_directories_of_through(void)
{
	static const char *const expected[] = {
		OPEN_JOB,
		OWN_DIRECTORY(JOB, "upper"),
		"fchmod " JOB "/upper 0755",
		OWN_DIRECTORY(JOB, "work"),
		"fsopen overlay",
		"fsconfig overlay lowerdir=/mnt/jail",
		"fsconfig overlay upperdir=" JOB "/upper",
		"fsconfig overlay workdir=" JOB "/work",
		"create overlay",
		"fsmount overlay",
		"move_mount new overlay on /mnt/jail",
		"openat2 /mnt/jail/home",
		"open_tree /mnt/jail/home recursive",
		"fstat /mnt/jail/home",
		"openat2 new overlay/home",
		"move_mount /mnt/jail/home on new overlay/home",
	};

	CHECK(enter_isolated() == 0);
	check_calls("fsopen overlay", expected + 14, ARRAY_SIZE(expected) - 14);
	check_calls("mkdirat " JOB "/upper 0700", expected + 7, 7);
	CHECK(called_with("fchdir new overlay"));
}

static void private_dev_contains_only_usual_and_configured_devices(void)
{
	static const char *const expected[] = {
		"fsopen tmpfs", "fsconfig tmpfs mode=0755", "fsconfig tmpfs size=64K",
		"create tmpfs", "fsmount tmpfs",
		"fstat new tmpfs", "openat2 new overlay/dev", "move_mount new tmpfs on new overlay/dev",
		"mkdirat new tmpfs/pts 0755", "mkdirat new tmpfs/shm 0755",
		"symlinkat new tmpfs/fd /proc/self/fd",
		"symlinkat new tmpfs/stdin /proc/self/fd/0",
		"symlinkat new tmpfs/stdout /proc/self/fd/1",
		"symlinkat new tmpfs/stderr /proc/self/fd/2",
		"symlinkat new tmpfs/ptmx pts/ptmx",
		"fsopen devpts", "fsconfig devpts ptmxmode=0666", "fsconfig devpts mode=0620",
		"fsconfig devpts gid=5", "create devpts", "fsmount devpts",
		"move_mount new devpts on new tmpfs/pts",
		"open /dev",
		"open_tree /dev/null recursive", "mount_setattr /dev/null ro",
		"fstat /dev/null", "openat new tmpfs/null new",
		"move_mount /dev/null on new tmpfs/null",
	};

	CHECK(enter_isolated() == 0);
	check_calls(expected[0], expected, ARRAY_SIZE(expected));
	CHECK(called_with("move_mount /dev/urandom on new tmpfs/urandom"));
	CHECK(called_with("move_mount /dev/nvidia0 on new tmpfs/nvidia0"));
	CHECK(called_with("mkdirat new tmpfs/nvidia-caps 0755"));
	CHECK(called_with("move_mount /dev/nvidia-caps on new tmpfs/nvidia-caps"));
	CHECK(!called_with("move_mount /dev/nvidia-link on new tmpfs/nvidia-link"));
	CHECK(!called_with("open_tree /dev/sda recursive"));
	CHECK(!called_with("open_tree /dev recursive"));
}

static void directories_with_a_size_are_in_memory(void)
{
	CHECK(enter_isolated() == 0);
	CHECK(called_with("fsconfig tmpfs size=1073741824"));
	CHECK(called_with("fsconfig tmpfs size=536870912"));
	CHECK(called_with("fsconfig tmpfs size=65536"));
	CHECK(called_with("move_mount new tmpfs on new overlay/tmp"));
	CHECK(called_with("move_mount new tmpfs on new overlay/dev/shm"));
	CHECK(!called_with("open /dev/shm"));
	CHECK(!called_with("openat " JOB "/tmp"));
}

static void job_never_sees_the_proc_of_the_node(void)
{
	CHECK(enter_isolated() == 0);
	CHECK(!called_with("move_mount /proc on new overlay/proc"));
	CHECK(called_with("openat2 new overlay/proc"));
}

/* Makes each call fail in turn, and checks that the step is refused. */
static void check_each_failure(int (*start)(void))
{
	size_t total;

	CHECK(start() == 0);
	total = node.n_calls;
	for (size_t i = 1; i <= total; i++) {
		unsigned int before = failures_in_test;

		restart();
		node.fail_at = i;
		check_refused(start(), strerror(EIO));
		CHECK(node.n_calls == i);
		CHECK(error_contains(node.failed_about));
		if (failures_in_test != before)
			printf("... where %s failed: %s", node.calls[i - 1], node.errors);
	}
}

static int start_step_of_root(void)
{
	node.uid = 0;
	return start_step();
}

static void step_is_refused_at_the_first_system_call_that_fails(void)
{
	check_each_failure(start_step);
	restart();
	check_each_failure(enter_isolated);
	restart();
	check_each_failure(join);
	restart();
	check_each_failure(start_step_of_root);
	restart();
	check_each_failure(enter_limited_on_version_1);
}

/* ---- cgroups ---- */

#define GROUP_V1 CGROUPS "/pids/slurm/job_123"
#define GROUP_V2 CGROUPS "/system.slice/cpu-0_slurmstepd.scope/job_123"

static void process_limit_is_set_in_the_cgroup_of_slurm(void)
{
	static const char *const expected[] = {
		"open " MACHINE_LIMIT, "read " MACHINE_LIMIT,
		"open " GROUP_V2, "openat " GROUP_V2 "/pids.max",
		"write 1000 to " GROUP_V2 "/pids.max",
	};

	CHECK(enter_isolated() == 0);
	check_calls(expected[0], expected, ARRAY_SIZE(expected));
	CHECK(processes_fd == -1);
}

static void process_limit_is_at_most_an_eighth_of_pid_max(void)
{
	node.machine_limit = "4096\n";
	CHECK(enter_isolated() == 0);
	CHECK(called_with("write 512 to " GROUP_V2 "/pids.max"));
}

static void tasks_join_a_separate_pids_cgroup_on_cgroup_v1(void)
{
	static const char *const expected[] = {
		"open " GROUP_V2, "mkdir " CGROUPS "/pids/slurm", "mkdir " GROUP_V1,
		"open " GROUP_V1, "openat " GROUP_V1 "/pids.max",
		"write 1000 to " GROUP_V1 "/pids.max", "openat " GROUP_V1 "/cgroup.procs",
	};

	CHECK(enter_limited_on_version_1() == 0);
	check_calls(expected[0], expected, ARRAY_SIZE(expected));
	CHECK(tasks_start());
	CHECK(called_with("write 0 to " GROUP_V1 "/cgroup.procs"));
}

static void task_that_cannot_join_its_cgroup_does_not_start(void)
{
	CHECK(enter_limited_on_version_1() == 0);
	CHECK(slurm_spank_user_init(NULL, USUAL) == 0);
	node.before();
	node.fail_at = node.n_calls + 1;
	if (setjmp(node.end) == 0)
		node.in_child();
	CHECK(node.exit_code == 1);
	CHECK(error_contains("cannot move a process to its cgroup"));
}

static void task_above_the_process_limit_does_not_start(void)
{
	node.used = "1001\n";
	CHECK(enter_limited_on_version_1() == 0);
	CHECK(!tasks_start());
	CHECK(node.exit_code == 1);
	CHECK(error_contains("has reached its limit of 1000 processes"));
}

static void keeper_leaves_the_freezer_cgroup_of_its_step_on_v1(void)
{
	node.cgroups = CGROUPS_V1;
	CHECK(start_step() == 0);
	CHECK(called_with("write 4711 to " CGROUPS "/freezer/cgroup.procs"));
}

static void jobs_run_without_writable_cgroups(void)
{
	node.cgroups = NO_CGROUPS;
	CHECK(enter_isolated() == 0);
	CHECK(tasks_start());
	for (size_t i = 0; i < node.n_calls; i++)
		CHECK(strstr(node.calls[i], "cgroup.procs") == NULL ||
		      strncmp(node.calls[i], "open ", 5) == 0);
}

/* ---- the keeper ---- */

static void be_keeper(char **options, int n)
{
	node.is_keeper = true;
	if (setjmp(node.end) == 0)
		(void)slurm_spank_init_post_opt(NULL, n, options);
}

static void keeper_is_ready_after_closing_files_and_mounting_proc(void)
{
	static const char *const expected[] = {
		"clone pids",
		"dup2 " JOB "/keeper 0",
		"dup2 pipe 1",
		"dup2 new overlay/proc 2",
		"close_range 3",
		"block signals",
		"ignore children",
		"setsid",
		"not dumpable",
		"fsopen proc", "create proc", "fsmount proc",
		"move_mount new proc on a descriptor that is not open",
		"lock 0",
		"write 1",
	};

	be_keeper(isolating_options, (int)ARRAY_SIZE(isolating_options));
	check_calls(expected[0], expected, ARRAY_SIZE(expected));
	CHECK(node.exit_code == -1 && strcmp(node.sent_to_parent, "") == 0);
}

static void machine_wide_proc_files_are_read_only_for_root(void)
{
	static const char *const expected[] = {
		"open_tree new proc/bus recursive",
		"mount_setattr new proc/bus ro",
		"move_mount new proc/bus on new proc/bus",
	};

	node.uid = 0;
	be_keeper(isolating_options, (int)ARRAY_SIZE(isolating_options));
	check_calls(expected[0], expected, ARRAY_SIZE(expected));
	CHECK(called_with("move_mount new proc/sys on new proc/sys"));
	/* The fake kernel lacks /proc/acpi. */
	CHECK(called_with("open_tree new proc/acpi recursive"));
	CHECK(!called_with("mount_setattr new proc/acpi ro"));
	CHECK(called_with("lock 0") && strcmp(node.sent_to_parent, "") == 0);
}

static void check_each_failure_of_the_keeper(uid_t uid)
{
	size_t first, total;

	node.uid = uid;
	be_keeper(isolating_options, (int)ARRAY_SIZE(isolating_options));
	total = node.n_calls;
	CHECK(called_with("clone pids"));
	for (first = 0; first < total && strcmp(node.calls[first], "clone pids") != 0; first++)
		;
	for (size_t i = first + 2; i < total; i++) {
		restart();
		node.uid = uid;
		node.fail_at = i;
		be_keeper(isolating_options, (int)ARRAY_SIZE(isolating_options));
		CHECK(node.exit_code == 1);
		CHECK(strstr(node.sent_to_parent, strerror(EIO)) != NULL);
		CHECK(node.n_errors == 0);
		CHECK(!called_with("lock 0") || strcmp(node.calls[i - 1], "lock 0") == 0);
	}
}

static void failed_keeper_sends_the_reason_to_slurmstepd_and_exits(void)
{
	check_each_failure_of_the_keeper(2000);
	restart();
	check_each_failure_of_the_keeper(0);
}

static void refusal_contains_the_reason_from_the_keeper(void)
{
	static const char reason[] = "cannot mount /proc in the jail";

	node.report = reason;
	node.report_length = sizeof(reason);
	CHECK(enter_isolated() < 0);
	CHECK(error_contains(reason));
	CHECK(open_descriptors() == 0 && every_later_callback_refuses());
}

static void step_is_refused_if_its_keeper_ends_at_once(void)
{
	node.report_length = 0;
	node.fail_at = 0;
	CHECK(start_step() < 0);
	CHECK(error_contains("the process that keeps the job's namespaces ended before"));
	CHECK(open_descriptors() == 0);
}

/* ---- forks ---- */

static void task_is_forked_into_the_namespaces_of_the_job(void)
{
	static const char *const expected[] = {
		"capget", "capset up", RETURN_TO_NODE, "capset down",
		"capget", "capset up", "setns process keeper pids", "capset down",
		"openat " GROUP_V2 "/pids.max", "read " GROUP_V2 "/pids.max",
		"openat " GROUP_V2 "/pids.current", "read " GROUP_V2 "/pids.current",
		"capget", "capset up", "seccomp", "capset down",
		"getcwd",
		"capget", "capset up", "setns process keeper mounts and ipc", "capset down",
		"chdir /home/researcher",
		"no new privileges", "capget", "capset for good",
		"open /proc/self/oom_score_adj", "write 1000 to /proc/self/oom_score_adj",
	};

	CHECK(enter_isolated() == 0);
	node.n_calls = 0;
	node.effective = 0;
	CHECK(tasks_start());
	CHECK(node.n_calls == ARRAY_SIZE(expected));
	check_calls(expected[0], expected, ARRAY_SIZE(expected));
	CHECK(in_job && !forks_into_job);
}

static void slurmstepd_returns_to_the_nodes_pid_namespace_after_each_fork(void)
{
	static const char *const expected[] = {
		"capget", "capset up", "setns process keeper pids", "capset down",
		"capget", "capset up", "setns process itself pids", "capset down",
	};

	CHECK(join() == 0);
	CHECK(slurm_spank_user_init(NULL, USUAL) == 0);
	for (int i = 0; i < 2; i++) {
		node.n_calls = 0;
		fork_task(false);
		CHECK(node.n_calls == ARRAY_SIZE(expected));
		check_calls(expected[0], expected, ARRAY_SIZE(expected));
	}
	CHECK(node.n_errors == 0);
}

static void join_and_fork_task(void)
{
	CHECK(join() == 0);
	CHECK(slurm_spank_user_init(NULL, USUAL) == 0);
	fork_task(false);
}

#define STEP_GROUP_V1 CGROUPS "/memory/slurm_cpu-0/uid_7/job_123/step_0/cgroup.procs"
#define STEP_GROUP_V2 CGROUPS "/system.slice/cpu-0_slurmstepd.scope/job_123/step_0/slurm/cgroup.procs"

static void slurmstepd_leaves_the_step_cgroup_after_starting_tasks(void)
{
	static const char *const expected[] = {
		"mkdir " DAEMONS_V2 "123", "open " DAEMONS_V2 "123",
		"openat " DAEMONS_V2 "123/memory.max",
		"write 536870912 to " DAEMONS_V2 "123/memory.max",
		"openat " DAEMONS_V2 "123/memory.swap.max",
		"write 0 to " DAEMONS_V2 "123/memory.swap.max",
		"openat " DAEMONS_V2 "123/cgroup.procs",
		"open " OWN_GROUPS, "read " OWN_GROUPS,
		"open " STEP_GROUP_V2, "write 0 to " DAEMONS_V2 "123/cgroup.procs",
	};

	join_and_fork_task();
	node.n_calls = 0;
	CHECK(slurm_spank_task_post_fork(NULL, USUAL) == 0);
	CHECK(node.n_calls == ARRAY_SIZE(expected));
	check_calls(expected[0], expected, ARRAY_SIZE(expected));
	CHECK(slurm_spank_task_post_fork(NULL, USUAL) == 0);
	CHECK(node.n_calls == ARRAY_SIZE(expected));
}

static void later_forks_of_slurmstepd_join_the_step_cgroup(void)
{
	node.cgroups = CGROUPS_V1;
	join_and_fork_task();
	CHECK(slurm_spank_task_post_fork(NULL, USUAL) == 0);
	CHECK(called_with("write 536870912 to " DAEMONS_V1 "123/memory.limit_in_bytes"));
	CHECK(called_with("write 536870912 to " DAEMONS_V1 "123/memory.memsw.limit_in_bytes"));
	CHECK(called_with("write 0 to " DAEMONS_V1 "123/cgroup.procs"));
	fork_task(true);
	CHECK(called_with("write 0 to " STEP_GROUP_V1));
}

static void slurmstepd_stays_in_its_cgroup_if_the_step_has_none(void)
{
	node.cgroups = NO_CGROUPS;
	join_and_fork_task();
	CHECK(slurm_spank_task_post_fork(NULL, USUAL) == 0);
	CHECK(step_group_fd == -1 && node.n_errors == 0);
}

static void step_fails_if_slurmstepd_cannot_leave_its_cgroup(void)
{
	for (size_t i = 1; i <= 11; i++) {
		restart();
		join_and_fork_task();
		node.fail_at = node.n_calls + i;
		CHECK(slurm_spank_task_post_fork(NULL, USUAL) < 0);
		CHECK(node.n_errors == 1);
	}
}

static void processes_forked_before_the_tasks_stay_on_the_node(void)
{
	CHECK(start_step() == 0);
	node.n_calls = 0;
	fork_task(false);
	fork_task(true);
	CHECK(node.n_calls == 0 && !in_job);
}

static void tasks_keep_their_privileges_by_default(void)
{
	CHECK(start_step() == 0);
	CHECK(tasks_start());
	CHECK(!called_with("no new privileges") && !called_with("capset for good"));
}

static void task_exits_at_once_if_it_cannot_enter_the_job(void)
{
	size_t first, total;
	bool started;

	CHECK(enter_isolated() == 0);
	first = node.n_calls;
	CHECK(tasks_start());
	total = node.n_calls;
	for (size_t i = first + 1; i <= total; i++) {
		restart();
		CHECK(enter_isolated() == 0);
		node.fail_at = i;
		started = tasks_start();
		/* Slurm itself checks the working directory later. */
		if (strncmp(node.calls[i - 1], "chdir", 5) == 0) {
			CHECK(started);
			continue;
		}
		CHECK(!started);
		/* The task has exited, the step has failed before the fork, or a callback failed. */
		CHECK(node.exit_code == 1 || !forks_into_job);
		CHECK(!in_job || strstr(node.calls[i - 1], "oom_score") != NULL);
		CHECK(error_contains(strerror(EIO)));
	}
}

static void task_outside_the_job_is_refused(void)
{
	CHECK(start_step() == 0);
	CHECK(slurm_spank_user_init(NULL, USUAL) == 0);
	CHECK(slurm_spank_task_init_privileged(NULL, USUAL) < 0);
	CHECK(slurm_spank_task_init(NULL, USUAL) < 0);
}

/* ---- refusals ---- */

static void later_callbacks_repeat_the_reason_of_the_first_failure(void)
{
	node.missing_point = "/sys";
	CHECK(start_step() < 0);
	node.errors[0] = '\0';
	CHECK(slurm_spank_user_init(NULL, USUAL) < 0);
	CHECK(error_contains("not inside the jail"));
	CHECK(error_contains("mount point /mnt/jail/sys is missing"));
}

static void step_is_refused_before_slurm_opens_user_paths(void)
{
	static const uint32_t steps[] = {0, 7, SLURM_INTERACTIVE_STEP, SLURM_BATCH_SCRIPT};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		restart();
		node.has_step_id = true;
		node.step_id = steps[i];
		node.missing_point = "/sys";
		check_refused(start_step(), "mount point /mnt/jail/sys is missing");
	}
}

/* The external step runs no user program, and Slurm would drain the node after a refusal. */
static void external_step_is_accepted_even_if_the_jail_is_faulty(void)
{
	node.has_step_id = true;
	node.step_id = SLURM_EXTERN_CONT;
	node.missing_point = "/sys";
	CHECK(start_step() == 0);
	CHECK(error_contains("mount point /mnt/jail/sys is missing"));
	CHECK(!inside_jail && open_descriptors() == 0);
}

static void log_of_slurmd_contains_the_reason_of_a_refusal(void)
{
	CHECK(setenv("SLURMSTACK_SLURMD", "4711", 1) == 0);
	node.missing_point = "/sys";
	CHECK(start_step() < 0);
	CHECK(strcmp(node.calls[0], "open /proc/4711/fd/2") == 0);
	CHECK(strstr(node.logged, "chroot: mount point /mnt/jail/sys is missing") != NULL);
	CHECK(open_descriptors() == 0);
}

static void slurmd_passes_its_pid_to_its_steps(void)
{
	char number[16];

	node.context = S_CTX_SLURMD;
	node.remote = 0;
	CHECK(slurm_spank_init(NULL, USUAL) == 0);
	(void)snprintf(number, sizeof(number), "%d", (int)getpid());
	CHECK(strcmp(getenv("SLURMSTACK_SLURMD"), number) == 0);
}

static void task_is_refused_if_slurmstepd_never_entered_the_jail(void)
{
	CHECK(every_later_callback_refuses());
	CHECK(error_contains("never entered"));
}

static void plugin_does_nothing_outside_a_step(void)
{
	char *nonsense[] = {"nonsense"};

	node.remote = 0;
	CHECK(slurm_spank_init_post_opt(NULL, 1, nonsense) == 0);
	CHECK(slurm_spank_user_init(NULL, USUAL) == 0);
	CHECK(slurm_spank_task_init_privileged(NULL, USUAL) == 0);
	CHECK(slurm_spank_task_init(NULL, USUAL) == 0);
	CHECK(node.n_calls == 0 && node.n_errors == 0);
}

static void unknown_context_is_refused(void)
{
	node.remote = -1;
	check_refused(start_step(), "whether this process is a step");
	CHECK(node.n_calls == 0);
}

static void step_without_a_job_id_or_uid_is_refused(void)
{
	node.no_job_id = true;
	check_refused(start_step(), "job's id");
	restart();
	node.no_uid = true;
	check_refused(start_step(), "job's user");
	CHECK(node.n_calls == 0);
}

static void error_names_a_missing_mount_point(void)
{
	node.missing_point = "/proc";
	check_refused(start_step(), "mount point /mnt/jail/proc is missing in the jail");
	CHECK(error_contains("a directory"));
	restart();
	node.missing_point = "/etc/hosts";
	check_refused(start_step(), "mount point /mnt/jail/etc/hosts is missing in the jail");
	CHECK(error_contains("a file"));
}

static void symbolic_link_as_mount_point_is_refused(void)
{
	node.linked_point = "/tmp";
	check_refused(start_step(), "/mnt/jail/tmp leads through a symbolic link");
}

static void directory_as_mount_point_of_a_file_is_refused(void)
{
	node.directory_point = "/mnt/jail/etc/hosts";
	check_refused(start_step(), "/mnt/jail/etc/hosts is a directory");
}

static void step_uses_directories_that_an_earlier_step_created(void)
{
	node.directories_exist = true;
	CHECK(start_step() == 0);
	CHECK(called_with("fchmod /scratch/slurm-jobs/123.2000/tmp 1777"));
}

static void directory_of_another_user_is_refused(void)
{
	node.directories_exist = true;
	node.directory_owner = 1000;
	check_refused(start_step(), "slurm-jobs below /scratch belongs to user 1000");
}

static void private_directory_that_other_users_can_enter_is_refused(void)
{
	node.directories_exist = true;
	node.directory_mode = 0711;
	check_refused(start_step(), "slurm-jobs below /scratch is open to others (mode 0711)");
}

static void largest_job_id_and_uid_fit_into_the_directory_name(void)
{
	node.job_id = UINT32_MAX;
	node.uid = (uid_t)UINT32_MAX;
	CHECK(start_step() == 0);
	CHECK(called_with("openat /scratch/slurm-jobs/4294967295.4294967295"));
}

/* ---- options ---- */

static void invalid_option_is_refused_before_any_system_call(void)
{
	check_option_refused("nonsense", "unknown option nonsense");
	check_option_refused("jails=/x", "unknown option jails=/x");
	check_option_refused("bind", "unknown option bind");
	check_option_refused("", "unknown option");
	check_option_refused("bind=", "bind=: expected an absolute path");
	check_option_refused("bind=relative/path", "bind=relative/path: expected an absolute path");
	check_option_refused("bind=/", "bind=/: expected");
	check_option_refused("bind=//", "bind=//: expected");
	check_option_refused("bind_ro=/run/../etc", "bind_ro=/run/../etc: expected");
	check_option_refused("bind=/run/.", "bind=/run/.: expected");
	check_option_refused("shm=..", "shm=..: expected");
	check_option_refused("node=conf", "node=conf: expected an absolute path");
	check_option_refused("through=/home", "requires overlay=yes");
	check_option_refused("through=home", "through=home: expected an absolute path");
	check_option_refused("device=nvidia0", "requires private_dev=yes");
	check_option_refused("device=", "device=: expected a name in /dev");
	check_option_refused("device=..", "device=..: expected a name in /dev");
	check_option_refused("device=dri/card0", "device=dri/card0: expected a name in /dev");
	check_option_refused("overlay=true", "overlay=true: expected yes or no");
	check_option_refused("no_new_privs=", "no_new_privs=: expected yes or no");
	check_option_refused("tmp_size=", "tmp_size=: expected a size");
	check_option_refused("tmp_size=0M", "tmp_size=0M: expected a size");
	check_option_refused("tmp_size=12", "tmp_size=12: expected a size");
	check_option_refused("tmp_size=-1M", "tmp_size=-1M: expected a size");
	check_option_refused("tmp_size=1MB", "tmp_size=1MB: expected a size");
	check_option_refused("tmp_size=1m", "tmp_size=1m: expected a size");
	check_option_refused("tmp_size=2000T", "tmp_size=2000T: expected a size");
	check_option_refused("shm_size=99999999999999999999999M", "expected a size");
	check_option_refused("jail=/again", "jail= is given twice");
	check_option_refused("scratch=/again", "scratch= is given twice");
}

static void path_parts_that_contain_dots_are_valid(void)
{
	char *options[] = {"jail=/mnt/jail", "scratch=/scratch", "spool=/run/..x/.y/z.."};

	CHECK(slurm_spank_init_post_opt(NULL, 3, options) == 0);
	CHECK(called_with("openat2 /mnt/jail/run/..x/.y/z.."));
}

static void options_jail_scratch_and_spool_are_required(void)
{
	char *no_jail[] = {"scratch=/scratch"};
	char *no_scratch[] = {"jail=/mnt/jail"};
	char *no_spool[] = {"jail=/mnt/jail", "scratch=/scratch"};

	check_refused(slurm_spank_init_post_opt(NULL, 1, no_jail), "jail= is missing");
	restart();
	check_refused(slurm_spank_init_post_opt(NULL, 1, no_scratch), "scratch= is missing");
	restart();
	check_refused(slurm_spank_init_post_opt(NULL, 2, no_spool), "spool= is missing");
	restart();
	check_refused(slurm_spank_init_post_opt(NULL, 0, NULL), "jail= is missing");
	CHECK(node.n_calls == 0);
}

static void shm_directory_is_configurable(void)
{
	char *options[] = {"jail=/mnt/jail", "scratch=/scratch", "spool=/spool", "shm=/memory"};

	CHECK(slurm_spank_init_post_opt(NULL, 4, options) == 0);
	CHECK(called_with("move_mount /memory/slurm-jobs/123.2000/shm on /mnt/jail/dev/shm"));
}

static void duplicate_option_is_refused(void)
{
	static char *twice[] = {"jail=/mnt/jail", "scratch=/scratch", "overlay=yes", "overlay=no"};

	check_refused(slurm_spank_init_post_opt(NULL, 4, twice), "overlay= is given twice");
	CHECK(node.n_calls == 0);
}

/* ---- the node file ---- */

static int enter_with_file(const char *text)
{
	static char *options[] = {"jail=/mnt/jail", "scratch=/scratch", "spool=/spool",
				  "node=/etc/node.conf"};

	node.node_file = text;
	return slurm_spank_init_post_opt(NULL, 4, options);
}

static void each_line_of_the_node_file_is_an_option(void)
{
	CHECK(enter_with_file("# of this node\n\nno_new_privs=yes\nprivate_dev=no\noverlay=no\n"
			      "bind=/run/munge") == 0);
	CHECK(config.no_new_privs);
	CHECK(called_with("move_mount /run/munge on /mnt/jail/run/munge"));
	CHECK(!config.overlay);
}

struct file_case {
	const char *text, *reason;
};

static void check_refused_files(const struct file_case *cases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		restart();
		check_refused(enter_with_file(cases[i].text), cases[i].reason);
	}
}

static void refusal_of_an_invalid_line_names_the_node_file(void)
{
	static const struct file_case cases[] = {
		{"nonsense\n", "/etc/node.conf: unknown option nonsense"},
		{"overlay=yes \n", "/etc/node.conf: overlay=yes : expected yes or no"},
		{" overlay=yes\n", "/etc/node.conf: unknown option  overlay=yes"},
		{"overlay=yes\r\n", "expected yes or no"},
		{"jail=/other\n", "/etc/node.conf: jail= is given twice"},
		{"node=/etc/other\n", "/etc/node.conf: node= is given twice"},
	};

	check_refused_files(cases, ARRAY_SIZE(cases));
}

static void node_file_without_a_switch_is_refused(void)
{
	static const struct file_case cases[] = {
		{"", "/etc/node.conf: no_new_privs= is missing: add no_new_privs=yes or "
		     "no_new_privs=no"},
		{"# nothing\n", "/etc/node.conf: no_new_privs= is missing"},
		{"no_new_privs=yes\noverlay=no\n", "/etc/node.conf: private_dev= is missing"},
		{"no_new_privs=yes\nprivate_dev=yes\n", "/etc/node.conf: overlay= is missing"},
	};

	check_refused_files(cases, ARRAY_SIZE(cases));
}

static void switches_may_be_arguments_instead_of_lines(void)
{
	static char *options[] = {"jail=/mnt/jail", "scratch=/scratch", "spool=/spool",
				  "node=/etc/node.conf", "no_new_privs=yes", "private_dev=no",
				  "overlay=no"};

	node.node_file = "";
	CHECK(slurm_spank_init_post_opt(NULL, ARRAY_SIZE(options), options) == 0);
	CHECK(config.no_new_privs);
}

static void error_about_a_missing_required_option_names_both_files(void)
{
	static const struct file_case cases[] = {
		{"no_new_privs=yes\nprivate_dev=no\noverlay=no\nthrough=/home\n",
		 "plugstack.conf or /etc/node.conf: through=/home requires overlay=yes: set it, "
		 "or remove through="},
		{"no_new_privs=yes\nprivate_dev=no\noverlay=no\ndevice=fuse\n",
		 "plugstack.conf or /etc/node.conf: device=fuse requires private_dev=yes"},
	};

	check_refused_files(cases, ARRAY_SIZE(cases));
	restart();
	check_option_refused("through=/home", "plugstack.conf: through=/home requires overlay=yes");
}

static void refusal_of_too_many_lines_names_the_node_file(void)
{
	static const char line[] = "device=fuse\n";
	static char text[(MAX_LISTED + 1) * sizeof(line)];

	for (size_t i = 0; i <= MAX_LISTED; i++)
		memcpy(text + i * strlen(line), line, strlen(line));
	check_refused(enter_with_file(text), "/etc/node.conf: more than 64 device= options");
	restart();
	for (size_t i = 0; i <= MAX_LISTED; i++)
		memcpy(text + i * strlen(line), "bind=/run/a\n", strlen(line));
	check_refused(enter_with_file(text), "/etc/node.conf: more than 64 bind= and bind_ro=");
}

static void node_file_is_refused_if_missing_or_writable_by_other_users(void)
{
	check_refused(enter_with_file(NULL), "cannot open /etc/node.conf");
	restart();
	node.node_file_owner = 1000;
	check_refused(enter_with_file("overlay=yes\n"), "expected a file that belongs to root");
	restart();
	node.node_file_mode = 0664;
	check_refused(enter_with_file("overlay=yes\n"), "only root can write");
}

static void node_file_above_the_size_limit_is_refused(void)
{
	static const char switches[] = "no_new_privs=yes\nprivate_dev=no\noverlay=no\n";
	static char text[MAX_NODE_FILE + 64];

	memset(text, '#', MAX_NODE_FILE + 1);
	memcpy(text, switches, strlen(switches));
	check_refused(enter_with_file(text), "expected at most 16384 bytes");
	restart();
	text[MAX_NODE_FILE] = '\0';
	CHECK(enter_with_file(text) == 0);
}

static void each_failed_system_call_on_the_node_file_is_reported(void)
{
	for (size_t i = 1; i <= 3; i++) {
		restart();
		node.fail_at = i;
		check_refused(enter_with_file("overlay=yes\n"), strerror(EIO));
		CHECK(error_contains("/etc/node.conf"));
	}
}

/* ---- more options ---- */

static void too_many_binds_are_refused(void)
{
	char *options[MAX_LISTED + 3] = {"jail=/mnt/jail", "scratch=/scratch"};

	for (size_t i = 2; i < ARRAY_SIZE(options); i++)
		options[i] = "bind=/run/munge";
	check_refused(slurm_spank_init_post_opt(NULL, MAX_LISTED + 3, options), "more than 64");
	CHECK(node.n_calls == 0);
}

static void path_longer_than_path_max_is_refused(void)
{
	static char option[PATH_MAX + 16];
	char *options[] = {"jail=/mnt/jail", "scratch=/scratch", "spool=/spool", option};

	memset(option, 'x', sizeof(option));
	memcpy(option, "bind=/", 6);
	option[5 + PATH_MAX - 1] = '\0';
	node.missing_point = option + 5;
	check_refused(slurm_spank_init_post_opt(NULL, 4, options), option + 5);
	CHECK(error_contains(strerror(ENOENT)));

	restart();
	option[5 + PATH_MAX - 1] = 'x';
	option[5 + PATH_MAX] = '\0';
	check_refused(slurm_spank_init_post_opt(NULL, 4, options), "expected an absolute path");
	CHECK(node.n_calls == 0);
}

/* ---- start of slurmd ---- */

static void slurmd_starts_with_a_complete_jail_and_mounts_nothing(void)
{
	node.context = S_CTX_SLURMD;
	node.remote = 0;
	CHECK(slurm_spank_init(NULL, USUAL) == 0);
	CHECK(node.n_errors == 0 && open_descriptors() == 0);
	CHECK(called_with("openat2 /mnt/jail/var/tmp"));
	for (size_t i = 0; i < node.n_calls; i++)
		CHECK(strncmp(node.calls[i], "open", 4) == 0 ||
		      strncmp(node.calls[i], "stat", 4) == 0 ||
		      strncmp(node.calls[i], "fstat", 5) == 0);
}

static void slurmd_does_not_start_with_a_faulty_jail(void)
{
	size_t total;

	node.context = S_CTX_SLURMD;
	CHECK(slurm_spank_init(NULL, USUAL) == 0);
	total = node.n_calls;
	for (size_t i = 1; i <= total; i++) {
		restart();
		node.context = S_CTX_SLURMD;
		node.fail_at = i;
		CHECK(slurm_spank_init(NULL, USUAL) < 0);
		CHECK(error_contains(strerror(EIO)) && error_contains(node.failed_about));
		CHECK(open_descriptors() == 0);
	}
}

static void slurmd_does_not_start_with_an_invalid_option(void)
{
	char *options[] = {"jail=/mnt/jail", "scratch=/scratch", "nonsense"};

	node.context = S_CTX_SLURMD;
	CHECK(slurm_spank_init(NULL, 3, options) < 0);
	CHECK(error_contains("unknown option nonsense"));
}

static void slurmd_does_not_start_without_preload_so(void)
{
	node.context = S_CTX_SLURMD;
	node.not_preloaded = true;
	CHECK(slurm_spank_init(NULL, USUAL) < 0);
	CHECK(error_contains("preload.so is not loaded"));
}

static void client_commands_ignore_the_options_of_the_plugin(void)
{
	char *options[] = {"nonsense"};
	const spank_context_t contexts[] = {S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_JOB_SCRIPT};

	for (size_t i = 0; i < ARRAY_SIZE(contexts); i++) {
		node.context = contexts[i];
		CHECK(slurm_spank_init(NULL, 1, options) == 0);
	}
	CHECK(node.n_calls == 0 && node.n_errors == 0);
}

/* ---- files that slurmd writes for a job ---- */

/* Calls the plugin as a child of slurmd does for sbcast. */
static int join_for_a_file(void)
{
	slurm_step_id_t step = {.job_id = 123, .step_id = 0};

	CHECK(setenv("SLURMSTACK_SCRATCH", "/scratch", 1) == 0);
	CHECK(container_p_restore("/var/spool/slurmd", true) == SLURM_SUCCESS);
	return container_p_join(&step, node.uid, false);
}

static int join_a_keeper_for_a_file(void)
{
	node.lock_file_exists = true;
	node.holders[0] = node.holders[1] = KEEPER;
	return join_for_a_file();
}

static void slurmd_opens_a_sbcast_file_in_the_jobs_namespace(void)
{
	CHECK(join_a_keeper_for_a_file() == SLURM_SUCCESS);
	CHECK(called_with("open /scratch"));
	CHECK(strcmp(node.calls[node.n_calls - 1], "setns process keeper mounts") == 0);
	CHECK(open_descriptors() == 0);
}

static void slurmd_writes_files_of_root_with_few_capabilities(void)
{
	node.uid = 0;
	CHECK(join_a_keeper_for_a_file() == SLURM_SUCCESS);
	CHECK(called_with("setns process keeper mounts"));
	CHECK(strcmp(node.calls[node.n_calls - 1], "capset for good") == 0);
	CHECK(node.permitted == 1U << CAP_SETUID);
}

static void slurmd_waits_for_the_first_step_of_a_job(void)
{
	node.lock_file_after = 3;
	node.holders[0] = node.holders[1] = KEEPER;
	CHECK(join_for_a_file() == SLURM_SUCCESS);
	CHECK(node.n_waits == 3 && node.n_errors == 0);
	CHECK(strcmp(node.calls[node.n_calls - 1], "setns process keeper mounts") == 0);
	CHECK(open_descriptors() == 0);
}

static void slurmd_writes_no_file_if_any_system_call_fails(void)
{
	size_t total;

	node.uid = 0;
	CHECK(join_a_keeper_for_a_file() == SLURM_SUCCESS);
	total = node.n_calls;
	for (size_t i = 1; i <= total; i++) {
		restart();
		node.uid = 0;
		node.fail_at = i;
		CHECK(join_a_keeper_for_a_file() == SLURM_ERROR);
		CHECK(error_contains(strerror(EIO)));
		CHECK(node.n_calls == i);
		CHECK(open_descriptors() == 0);
	}
}

static void slurmd_writes_no_file_without_preload_so(void)
{
	node.not_preloaded = true;
	CHECK(join_a_keeper_for_a_file() == SLURM_ERROR);
	CHECK(error_contains("is not loaded"));
	CHECK(open_descriptors() == 0);
}

static void slurmd_writes_no_file_for_a_job_outside_the_jail(void)
{
	CHECK(join_for_a_file() == SLURM_ERROR);
	CHECK(error_contains("job 123.2000 has not entered the jail on this node"));
	CHECK(node.n_waits == 140);
	CHECK(open_descriptors() == 0);
}

static void slurmd_writes_no_file_without_slurmstack_scratch(void)
{
	slurm_step_id_t step = {.job_id = 123, .step_id = 0};

	CHECK(unsetenv("SLURMSTACK_SCRATCH") == 0);
	CHECK(container_p_restore("/var/spool/slurmd", true) == SLURM_SUCCESS);
	CHECK(container_p_join(&step, 2000, false) == SLURM_ERROR);
	CHECK(error_contains("SLURMSTACK_SCRATCH"));
	CHECK(node.n_calls == 0);
}

static void slurmd_and_slurmstepd_keep_their_namespaces_for_new_steps(void)
{
	slurm_step_id_t step = {.job_id = 123, .step_id = 0};

	CHECK(container_p_join(&step, 2000, false) == SLURM_SUCCESS);
	CHECK(container_p_restore("/var/spool/slurmd", true) == SLURM_SUCCESS);
	CHECK(container_p_join(&step, 2000, true) == SLURM_SUCCESS);
	CHECK(node.n_calls == 0);
}

/* ---- the end of a job, on real directories ---- */

static char root[] = "/tmp/test-chroot-XXXXXX";
static char scratch_option[64], shm_option[64];
static char *real_options[] = {"jail=/mnt/jail", "spool=/spool", scratch_option, shm_option};
#define REAL 4, real_options

__attribute__((format(printf, 1, 2))) static const char *below_root(const char *format, ...)
{
	static char path[PATH_MAX];
	size_t length = (size_t)snprintf(path, sizeof(path), "%s/", root);
	va_list args;

	va_start(args, format);
	(void)vsnprintf(path + length, sizeof(path) - length, format, args);
	va_end(args);
	return path;
}

static void make_directory(const char *path)
{
	if (mkdir(below_root("%s", path), 0700) < 0 && errno != EEXIST)
		abort();
}

static void make_file(const char *path)
{
	FILE *file = fopen(below_root("%s", path), "w");

	if (file == NULL || fclose(file) != 0)
		abort();
}

static bool exists(const char *path)
{
	struct stat status;

	return lstat(below_root("%s", path), &status) == 0;
}

/* Whether a job's directory below `base` is gone, also under the name that the epilog gives. */
static bool is_gone(const char *base, const char *name)
{
	char path[128], aside[128];

	(void)snprintf(path, sizeof(path), "%s/slurm-jobs/%s", base, name);
	(void)snprintf(aside, sizeof(aside), "%s/slurm-jobs/ended.%s.0", base, name);
	return !exists(path) && !exists(aside);
}

static void use_real_files(void)
{
	node.real_files = true;
	node.context = S_CTX_JOB_SCRIPT;
	node.remote = 0;
	(void)snprintf(scratch_option, sizeof(scratch_option), "scratch=%s/scratch", root);
	(void)snprintf(shm_option, sizeof(shm_option), "shm=%s/shm", root);
	make_directory("scratch");
	make_directory("shm");
}

static void make_job_files(const char *name)
{
	make_directory("scratch/slurm-jobs");
	make_directory("shm/slurm-jobs");
	for (int i = 0; i < 2; i++) {
		const char *base = i == 0 ? "scratch" : "shm";
		char path[128];

		(void)snprintf(path, sizeof(path), "%s/slurm-jobs/%s", base, name);
		make_directory(path);
		(void)snprintf(path, sizeof(path), "%s/slurm-jobs/%s/tmp", base, name);
		make_directory(path);
		(void)snprintf(path, sizeof(path), "%s/slurm-jobs/%s/tmp/file", base, name);
		make_file(path);
	}
}

/* Starts a process that locks the keeper's file of a job. Returns its pid. */
static pid_t lock_job(const char *name)
{
	int ready[2];
	char path[128], byte;
	pid_t pid;

	(void)snprintf(path, sizeof(path), "scratch/slurm-jobs/%s/keeper", name);
	make_file(path);
	if (pipe(ready) < 0 || (pid = fork()) < 0)
		abort();
	if (pid == 0) {
		struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
		int fd = open(below_root("%s", path), O_RDWR);

		if (fcntl(fd, F_SETLK, &lock) < 0 || write(ready[1], "", 1) != 1)
			abort();
		for (;;)
			(void)pause();
	}
	if (read(ready[0], &byte, 1) != 1)
		abort();
	(void)close(ready[0]);
	(void)close(ready[1]);
	return pid;
}

static void epilog_ends_only_the_keeper_of_its_job(void)
{
	pid_t keeper, other;
	int status = 0;

	use_real_files();
	make_job_files("123.2000");
	make_job_files("1234.2000");
	keeper = lock_job("123.2000");
	other = lock_job("1234.2000");
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(node.n_errors == 0);
	CHECK(waitpid(keeper, &status, 0) == keeper && WTERMSIG(status) == SIGKILL);
	CHECK(is_gone("scratch", "123.2000"));
	CHECK(kill(other, SIGKILL) == 0);
	CHECK(waitpid(other, &status, 0) == other);
}

static void epilog_reports_processes_that_do_not_end(void)
{
	node.lock_file_exists = true;
	node.holders[0] = node.holders[1] = KEEPER;
	node.processes_go_on = true;
	end_keeper(new_fd(JOB));
	CHECK(called_with("kill process keeper"));
	CHECK(error_contains("processes of the job still run"));
}

static void epilog_removes_only_the_directories_of_its_job(void)
{
	use_real_files();
	make_job_files("123.2000");
	make_job_files("123.2001");
	make_job_files("12.2000");
	make_job_files("1234.2000");
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(node.n_errors == 0);
	CHECK(is_gone("scratch", "123.2000") && is_gone("shm", "123.2000"));
	CHECK(is_gone("scratch", "123.2001") && is_gone("shm", "123.2001"));
	CHECK(exists("scratch/slurm-jobs/12.2000/tmp/file"));
	CHECK(exists("shm/slurm-jobs/1234.2000/tmp/file"));
}

static void epilog_follows_no_symbolic_link(void)
{
	char target[PATH_MAX];

	use_real_files();
	make_job_files("123.2000");
	make_directory("precious");
	make_file("precious/file");
	(void)snprintf(target, sizeof(target), "%s/precious", root);
	CHECK(symlink(target, below_root("scratch/slurm-jobs/123.2000/link")) == 0);
	CHECK(symlink(target, below_root("scratch/slurm-jobs/123.2000/tmp/link")) == 0);
	CHECK(symlink(target, below_root("scratch/slurm-jobs/123.9")) == 0);
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(is_gone("scratch", "123.2000"));
	CHECK(exists("precious/file"));
	CHECK(error_contains("123.9"));
}

static void epilog_removes_directories_deeper_than_the_path_limit(void)
{
	int fd;

	use_real_files();
	make_job_files("123.2000");
	/* Take the first names that the removal chooses for moved directories. */
	for (unsigned long i = 0; i < 100; i++) {
		char name[64];

		(void)snprintf(name, sizeof(name), "scratch/slurm-jobs/123.2000/.removed-%lu",
			       moves + i);
		make_file(name);
	}
	fd = open(below_root("scratch/slurm-jobs/123.2000/tmp"), O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < 3000; i++) {
		char name[201];
		int child;

		memset(name, 'd', sizeof(name));
		name[200] = '\0';
		if (mkdirat(fd, name, 0700) < 0)
			abort();
		child = openat(fd, name, O_RDONLY | O_DIRECTORY);
		if (child < 0)
			abort();
		(void)close(fd);
		fd = child;
	}
	(void)close(fd);
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(node.n_errors == 0);
	CHECK(is_gone("scratch", "123.2000"));
}

static void failed_removal_is_logged_and_does_not_fail_the_job(void)
{
	use_real_files();
	make_job_files("123.2000");
	node.unremovable = "file";
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(error_contains("scratch/slurm-jobs/ended.123.2000.0: ") &&
	      error_contains("shm/slurm-jobs/ended.123.2000.0: "));
	CHECK(error_contains(strerror(EBUSY)));
	node.unremovable = NULL;
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(is_gone("scratch", "123.2000"));
}

static void epilog_renames_directories_before_a_child_removes_them(void)
{
	use_real_files();
	node.forks = true;
	for (int run = 0; run < 2; run++) {
		make_job_files("123.2000");
		CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
		CHECK(!exists("scratch/slurm-jobs/123.2000") && !exists("shm/slurm-jobs/123.2000"));
	}
	CHECK(exists("scratch/slurm-jobs/ended.123.2000.0/tmp/file"));
	CHECK(exists("shm/slurm-jobs/ended.123.2000.1/tmp/file"));
	CHECK(node.n_errors == 0);
}

static void next_epilog_removes_leftovers_of_a_killed_removal(void)
{
	use_real_files();
	make_job_files("ended.1.2000.0");
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(!exists("scratch/slurm-jobs/ended.1.2000.0"));
	CHECK(!exists("shm/slurm-jobs/ended.1.2000.0"));
	CHECK(node.n_errors == 0);
}

static void only_one_process_removes_directories_at_a_time(void)
{
	int busy;

	use_real_files();
	make_job_files("123.2000");
	busy = open(below_root("scratch/slurm-jobs"), O_RDONLY | O_DIRECTORY);
	CHECK(flock(busy, LOCK_EX) == 0);
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(exists("scratch/slurm-jobs/ended.123.2000.0/tmp/file"));
	CHECK(node.n_errors == 0);
	(void)close(busy);
}

static void removal_alternates_between_ended_jobs(void)
{
	use_real_files();
	make_job_files("ended.1.2000.0");
	make_job_files("ended.2.2000.0");
	for (int i = 0; i < TURN; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "scratch/slurm-jobs/ended.%d.2000.0/tmp/%d",
			       1 + i % 2, i);
		make_directory(path);
	}
	turn = 100;
	CHECK(remove_tree(open(below_root("scratch/slurm-jobs"), O_RDONLY), "ended.1.2000.0") < 0);
	CHECK(errno == EAGAIN);
	turn = ULONG_MAX;
	CHECK(exists("scratch/slurm-jobs/ended.1.2000.0"));
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(!exists("scratch/slurm-jobs/ended.1.2000.0"));
	CHECK(!exists("scratch/slurm-jobs/ended.2.2000.0"));
	CHECK(node.n_errors == 0);
}

static void epilog_logs_nothing_for_a_job_without_steps(void)
{
	use_real_files();
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(node.n_errors == 0);
}

static void epilog_reports_its_failures(void)
{
	char *wrong[] = {"nonsense"};

	use_real_files();
	CHECK(rmdir(below_root("shm")) == 0);
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(error_contains("/shm on the node: ") && node.n_errors == 1);

	node.no_job_id = true;
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(error_contains("cannot clean up"));
	CHECK(slurm_spank_job_epilog(NULL, 1, wrong) == 0);
	CHECK(error_contains("unknown option nonsense"));
}

/* ---- */

static const struct test tests[] = {
	TEST(first_step_creates_the_root_and_keeper_of_the_job),
	TEST(later_step_joins_the_namespaces_of_the_first_step),
	TEST(only_the_jobs_user_can_connect_to_the_step_socket),
	TEST(number_of_steps_in_a_job_is_limited),
	TEST(number_of_steps_on_a_node_is_limited),
	TEST(step_without_an_id_is_refused),
	TEST(proc_is_empty_while_slurmstepd_opens_user_paths),
	TEST(slurmstepd_returns_to_the_node_if_files_cannot_be_opened),
	TEST(external_step_returns_to_the_node_at_once),
	TEST(step_of_root_gets_its_own_spool_and_few_capabilities),
	TEST(keeper_that_ends_before_pidfd_open_is_looked_up_again),
	TEST(keeper_that_has_ended_is_replaced),
	TEST(overlay_shares_only_the_directories_of_through),
	TEST(private_dev_contains_only_usual_and_configured_devices),
	TEST(directories_with_a_size_are_in_memory),
	TEST(job_never_sees_the_proc_of_the_node),
	TEST(step_is_refused_at_the_first_system_call_that_fails),
	TEST(process_limit_is_set_in_the_cgroup_of_slurm),
	TEST(process_limit_is_at_most_an_eighth_of_pid_max),
	TEST(tasks_join_a_separate_pids_cgroup_on_cgroup_v1),
	TEST(task_that_cannot_join_its_cgroup_does_not_start),
	TEST(task_above_the_process_limit_does_not_start),
	TEST(keeper_leaves_the_freezer_cgroup_of_its_step_on_v1),
	TEST(jobs_run_without_writable_cgroups),
	TEST(keeper_is_ready_after_closing_files_and_mounting_proc),
	TEST(machine_wide_proc_files_are_read_only_for_root),
	TEST(failed_keeper_sends_the_reason_to_slurmstepd_and_exits),
	TEST(refusal_contains_the_reason_from_the_keeper),
	TEST(step_is_refused_if_its_keeper_ends_at_once),
	TEST(task_is_forked_into_the_namespaces_of_the_job),
	TEST(slurmstepd_returns_to_the_nodes_pid_namespace_after_each_fork),
	TEST(slurmstepd_leaves_the_step_cgroup_after_starting_tasks),
	TEST(later_forks_of_slurmstepd_join_the_step_cgroup),
	TEST(slurmstepd_stays_in_its_cgroup_if_the_step_has_none),
	TEST(step_fails_if_slurmstepd_cannot_leave_its_cgroup),
	TEST(processes_forked_before_the_tasks_stay_on_the_node),
	TEST(tasks_keep_their_privileges_by_default),
	TEST(task_exits_at_once_if_it_cannot_enter_the_job),
	TEST(task_outside_the_job_is_refused),
	TEST(later_callbacks_repeat_the_reason_of_the_first_failure),
	TEST(step_is_refused_before_slurm_opens_user_paths),
	TEST(external_step_is_accepted_even_if_the_jail_is_faulty),
	TEST(log_of_slurmd_contains_the_reason_of_a_refusal),
	TEST(slurmd_passes_its_pid_to_its_steps),
	TEST(task_is_refused_if_slurmstepd_never_entered_the_jail),
	TEST(plugin_does_nothing_outside_a_step),
	TEST(unknown_context_is_refused),
	TEST(step_without_a_job_id_or_uid_is_refused),
	TEST(error_names_a_missing_mount_point),
	TEST(symbolic_link_as_mount_point_is_refused),
	TEST(directory_as_mount_point_of_a_file_is_refused),
	TEST(step_uses_directories_that_an_earlier_step_created),
	TEST(directory_of_another_user_is_refused),
	TEST(private_directory_that_other_users_can_enter_is_refused),
	TEST(largest_job_id_and_uid_fit_into_the_directory_name),
	TEST(invalid_option_is_refused_before_any_system_call),
	TEST(path_parts_that_contain_dots_are_valid),
	TEST(options_jail_scratch_and_spool_are_required),
	TEST(shm_directory_is_configurable),
	TEST(duplicate_option_is_refused),
	TEST(each_line_of_the_node_file_is_an_option),
	TEST(refusal_of_an_invalid_line_names_the_node_file),
	TEST(node_file_without_a_switch_is_refused),
	TEST(switches_may_be_arguments_instead_of_lines),
	TEST(error_about_a_missing_required_option_names_both_files),
	TEST(refusal_of_too_many_lines_names_the_node_file),
	TEST(node_file_is_refused_if_missing_or_writable_by_other_users),
	TEST(node_file_above_the_size_limit_is_refused),
	TEST(each_failed_system_call_on_the_node_file_is_reported),
	TEST(too_many_binds_are_refused),
	TEST(path_longer_than_path_max_is_refused),
	TEST(slurmd_starts_with_a_complete_jail_and_mounts_nothing),
	TEST(slurmd_does_not_start_with_a_faulty_jail),
	TEST(slurmd_does_not_start_with_an_invalid_option),
	TEST(slurmd_does_not_start_without_preload_so),
	TEST(client_commands_ignore_the_options_of_the_plugin),
	TEST(slurmd_opens_a_sbcast_file_in_the_jobs_namespace),
	TEST(slurmd_writes_files_of_root_with_few_capabilities),
	TEST(slurmd_waits_for_the_first_step_of_a_job),
	TEST(slurmd_writes_no_file_if_any_system_call_fails),
	TEST(slurmd_writes_no_file_without_preload_so),
	TEST(slurmd_writes_no_file_for_a_job_outside_the_jail),
	TEST(slurmd_writes_no_file_without_slurmstack_scratch),
	TEST(slurmd_and_slurmstepd_keep_their_namespaces_for_new_steps),
	TEST(epilog_ends_only_the_keeper_of_its_job),
	TEST(epilog_reports_processes_that_do_not_end),
	TEST(epilog_removes_only_the_directories_of_its_job),
	TEST(epilog_follows_no_symbolic_link),
	TEST(epilog_removes_directories_deeper_than_the_path_limit),
	TEST(failed_removal_is_logged_and_does_not_fail_the_job),
	TEST(epilog_renames_directories_before_a_child_removes_them),
	TEST(next_epilog_removes_leftovers_of_a_killed_removal),
	TEST(only_one_process_removes_directories_at_a_time),
	TEST(removal_alternates_between_ended_jobs),
	TEST(epilog_logs_nothing_for_a_job_without_steps),
	TEST(epilog_reports_its_failures),
};

static void remove_root(void)
{
	reset_node();
	node.real_files = true;
	if (remove_tree(AT_FDCWD, root) < 0)
		printf("cannot remove %s: %s\n", root, strerror(errno));
}

static void prepare(void)
{
	memcpy(root + strlen(root) - 6, "XXXXXX", 6);
	if (mkdtemp(root) == NULL) {
		perror(root);
		exit(EXIT_FAILURE);
	}
	restart();
}

int main(void)
{
	return run_tests(tests, ARRAY_SIZE(tests), prepare, remove_root);
}

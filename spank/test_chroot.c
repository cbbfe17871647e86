/*
 * Tests of chroot.c, which this file includes: Slurm and the system calls are fakes that
 * record what they were asked, in order, and can fail at any one place. The removal at the
 * end of a job runs on real directories.
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
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <slurm/spank.h>

#define MAX_CALLS 256
#define MAX_FDS 256
#define FIRST_FD 1000
#define NAME_SIZE (PATH_MAX + 64)

static unsigned int failures_in_test;

#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			failures_in_test++;                                                \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);             \
		}                                                                          \
	} while (0)

/* ---- the fake node ---- */

static struct {
	/* What Slurm says. */
	int remote;
	spank_context_t context;
	uint32_t job_id;
	uid_t uid;
	bool has_step_id;
	uint32_t step_id;
	bool no_job_id, no_uid;
	/* What the node is like. */
	uid_t directory_owner;
	mode_t directory_mode;
	bool directories_exist;
	const char *missing_point, *linked_point, *directory_point;
	/* The call, counted from 1, that fails, and how; 0 for none. */
	size_t fail_at;
	int fail_with;
	/* True: file calls reach the real system, and every file there seems to be root's. */
	bool real_files;
	const char *unremovable;

	char calls[MAX_CALLS][NAME_SIZE];
	size_t n_calls;
	char failed_about[NAME_SIZE];
	char names[MAX_FDS][NAME_SIZE];
	bool is_open[MAX_FDS];
	int n_fds;
	char errors[8 * PATH_MAX];
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
	node.fail_with = EIO;
}

/* Records a call about `subject`; true when it is the one that has to fail. */
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
	return strcmp(path, "/etc/hosts") == 0 || strcmp(path, "/mnt/jail/etc/hosts") == 0;
}

static int fake_open(const char *path, int flags)
{
	if (node.real_files)
		return open(path, flags);
	if (called(path, "open %s", path))
		return -1;
	return new_fd(path);
}

static int fake_openat(int parent, const char *name, int flags)
{
	char path[2 * NAME_SIZE];

	if (node.real_files)
		return openat(parent, name, flags);
	(void)snprintf(path, sizeof(path), "%s/%s", name_of(parent), name);
	CHECK((flags & (O_NOFOLLOW | O_DIRECTORY)) == (O_NOFOLLOW | O_DIRECTORY));
	if (called(name, "openat %s", path))
		return -1;
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

static int fake_fchmod(int fd, mode_t mode)
{
	return called("", "fchmod %s %04o", name_of(fd), (unsigned int)mode) ? -1 : 0;
}

static int fake_fstat(int fd, struct stat *status)
{
	const char *path = name_of(fd);

	if (called("", "fstat %s", path))
		return -1;
	memset(status, 0, sizeof(*status));
	status->st_uid = node.directory_owner;
	status->st_mode = is_file(path) ? (mode_t)(S_IFREG | 0644)
					: (mode_t)(S_IFDIR | node.directory_mode);
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
	CHECK(strcmp(name_of(fd), "a descriptor that is not open") != 0);
	if (fd >= FIRST_FD && fd < FIRST_FD + node.n_fds)
		node.is_open[fd - FIRST_FD] = false;
	return 0;
}

static int fake_unshare(int flags)
{
	return called("", "unshare %s", flags == CLONE_NEWNS ? "mounts" : "?") ? -1 : 0;
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
	const char *name = (flags & AT_EMPTY_PATH) != 0 ? name_of(fd) : path;

	CHECK((flags & (OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)) ==
	      (OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
	if (called(path, "open_tree %s%s", name, (flags & AT_RECURSIVE) != 0 ? " recursive" : ""))
		return -1;
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

	CHECK(from_path[0] == '\0' && (flags & MOVE_MOUNT_F_EMPTY_PATH) != 0);
	return called(target, "move_mount %s on %s", name_of(from), target) ? -1 : 0;
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
	} else {
		abort();
	}
	va_end(args);
	return rc;
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

/* With arguments, so that `struct stat` and the like keep their names. */
#define open(path, flags) fake_open(path, flags)
#define openat(parent, name, flags) fake_openat(parent, name, flags)
#define mkdirat(parent, name, mode) fake_mkdirat(parent, name, mode)
#define fchmod(fd, mode) fake_fchmod(fd, mode)
#define fstat(fd, status) fake_fstat(fd, status)
#define stat(path, status) fake_stat(path, status)
#define close(fd) fake_close(fd)
#define unshare(flags) fake_unshare(flags)
#define mount(source, target, type, flags, data) fake_mount(source, target, type, flags, data)
#define umount2(target, flags) fake_umount2(target, flags)
#define open_tree(fd, path, flags) fake_open_tree(fd, path, flags)
#define mount_setattr(fd, path, flags, attr, size) fake_mount_setattr(fd, path, flags, attr, size)
#define move_mount(from, name, to, to_name, flags) fake_move_mount(from, name, to, to_name, flags)
#define fchdir(fd) fake_fchdir(fd)
#define chdir(path) fake_chdir(path)
#define syscall(...) fake_syscall(__VA_ARGS__)
#define unlinkat(parent, name, flags) fake_unlinkat(parent, name, flags)

#include "chroot.c"

#undef open
#undef openat
#undef mkdirat
#undef fchmod
#undef fstat
#undef stat
#undef close
#undef unshare
#undef mount
#undef umount2
#undef open_tree
#undef mount_setattr
#undef move_mount
#undef fchdir
#undef chdir
#undef syscall
#undef unlinkat

/* ---- helpers ---- */

static char *usual_options[] = {
	"jail=/mnt/jail", "scratch=/scratch", "bind=/run/munge", "bind_ro=/etc/hosts",
};
#define USUAL (int)ARRAY_SIZE(usual_options), usual_options

/* A new slurmstepd on a new node. */
static void restart(void)
{
	reset_node();
	inside_jail = false;
	refusal[0] = '\0';
}

static int enter(void)
{
	return slurm_spank_init_post_opt(NULL, USUAL);
}

static bool said(const char *text)
{
	return strstr(node.errors, text) != NULL;
}

static bool every_later_callback_refuses(void)
{
	return slurm_spank_user_init(NULL, USUAL) < 0 &&
	       slurm_spank_task_init_privileged(NULL, USUAL) < 0 &&
	       slurm_spank_task_init(NULL, USUAL) < 0;
}

static bool every_later_callback_accepts(void)
{
	return slurm_spank_user_init(NULL, USUAL) == 0 &&
	       slurm_spank_task_init_privileged(NULL, USUAL) == 0 &&
	       slurm_spank_task_init(NULL, USUAL) == 0;
}

/* The step is refused: nothing of it starts, an error says why, nothing stays open. */
static void check_refused(int rc, const char *reason)
{
	CHECK(rc < 0);
	CHECK(said("chroot: "));
	CHECK(said(reason));
	CHECK(open_descriptors() == 0);
	CHECK(every_later_callback_refuses());
	for (size_t i = 0; i < node.n_calls; i++)
		CHECK(node.fail_at != 0 || strncmp(node.calls[i], "pivot_root", 10) != 0);
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
	char *options[] = {"jail=/mnt/jail", "scratch=/scratch", option};

	restart();
	check_refused(slurm_spank_init_post_opt(NULL, 3, options), reason);
	CHECK(node.n_calls == 0);
}

/* ---- entering the jail ---- */

static void the_mounts_come_in_order_and_the_old_root_goes_last(void)
{
	static const char *const expected[] = {
		"unshare mounts",
		"mount / rprivate",
		"open_tree /mnt/jail recursive",
		"move_mount /mnt/jail on /mnt/jail",
		"open_tree /proc recursive",
		"fstat /proc",
		"openat2 /mnt/jail/proc",
		"move_mount /proc on /mnt/jail/proc",
		"open_tree /sys recursive",
		"fstat /sys",
		"openat2 /mnt/jail/sys",
		"move_mount /sys on /mnt/jail/sys",
		"open_tree /dev recursive",
		"fstat /dev",
		"openat2 /mnt/jail/dev",
		"move_mount /dev on /mnt/jail/dev",
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
		"open /scratch",
		"mkdirat /scratch/slurm-jobs 0700",
		"openat /scratch/slurm-jobs",
		"fstat /scratch/slurm-jobs",
		"mkdirat /scratch/slurm-jobs/123.2000 0700",
		"openat /scratch/slurm-jobs/123.2000",
		"fstat /scratch/slurm-jobs/123.2000",
		"mkdirat /scratch/slurm-jobs/123.2000/tmp 0700",
		"openat /scratch/slurm-jobs/123.2000/tmp",
		"fstat /scratch/slurm-jobs/123.2000/tmp",
		"fchmod /scratch/slurm-jobs/123.2000/tmp 1777",
		"open_tree /scratch/slurm-jobs/123.2000/tmp",
		"mount_setattr /scratch/slurm-jobs/123.2000/tmp nosuid nodev",
		"fstat /scratch/slurm-jobs/123.2000/tmp",
		"openat2 /mnt/jail/tmp",
		"move_mount /scratch/slurm-jobs/123.2000/tmp on /mnt/jail/tmp",
		"open /scratch",
		"mkdirat /scratch/slurm-jobs 0700",
		"openat /scratch/slurm-jobs",
		"fstat /scratch/slurm-jobs",
		"mkdirat /scratch/slurm-jobs/123.2000 0700",
		"openat /scratch/slurm-jobs/123.2000",
		"fstat /scratch/slurm-jobs/123.2000",
		"mkdirat /scratch/slurm-jobs/123.2000/var_tmp 0700",
		"openat /scratch/slurm-jobs/123.2000/var_tmp",
		"fstat /scratch/slurm-jobs/123.2000/var_tmp",
		"fchmod /scratch/slurm-jobs/123.2000/var_tmp 1777",
		"open_tree /scratch/slurm-jobs/123.2000/var_tmp",
		"mount_setattr /scratch/slurm-jobs/123.2000/var_tmp nosuid nodev",
		"fstat /scratch/slurm-jobs/123.2000/var_tmp",
		"openat2 /mnt/jail/var/tmp",
		"move_mount /scratch/slurm-jobs/123.2000/var_tmp on /mnt/jail/var/tmp",
		"open /dev/shm",
		"mkdirat /dev/shm/slurm-jobs 0700",
		"openat /dev/shm/slurm-jobs",
		"fstat /dev/shm/slurm-jobs",
		"mkdirat /dev/shm/slurm-jobs/123.2000 0700",
		"openat /dev/shm/slurm-jobs/123.2000",
		"fstat /dev/shm/slurm-jobs/123.2000",
		"mkdirat /dev/shm/slurm-jobs/123.2000/shm 0700",
		"openat /dev/shm/slurm-jobs/123.2000/shm",
		"fstat /dev/shm/slurm-jobs/123.2000/shm",
		"fchmod /dev/shm/slurm-jobs/123.2000/shm 1777",
		"open_tree /dev/shm/slurm-jobs/123.2000/shm",
		"mount_setattr /dev/shm/slurm-jobs/123.2000/shm nosuid nodev",
		"fstat /dev/shm/slurm-jobs/123.2000/shm",
		"openat2 /mnt/jail/dev/shm",
		"move_mount /dev/shm/slurm-jobs/123.2000/shm on /mnt/jail/dev/shm",
		"fchdir /mnt/jail",
		"pivot_root . .",
		"umount2 . detach",
		"chdir /",
	};

	CHECK(enter() == 0);
	CHECK(node.n_calls == ARRAY_SIZE(expected));
	for (size_t i = 0; i < node.n_calls && i < ARRAY_SIZE(expected); i++)
		if (strcmp(node.calls[i], expected[i]) != 0) {
			printf("call %zu: %s, expected %s\n", i, node.calls[i], expected[i]);
			failures_in_test++;
		}
	CHECK(node.n_errors == 0);
	CHECK(open_descriptors() == 0);
	CHECK(every_later_callback_accepts());
}

static void whichever_call_fails_the_step_is_refused_and_nothing_is_called_after_it(void)
{
	size_t total;

	CHECK(enter() == 0);
	total = node.n_calls;
	for (size_t i = 1; i <= total; i++) {
		unsigned int before = failures_in_test;

		restart();
		node.fail_at = i;
		check_refused(enter(), strerror(EIO));
		CHECK(node.n_calls == i);
		CHECK(said(node.failed_about));
		if (failures_in_test != before)
			printf("... where %s failed: %s", node.calls[i - 1], node.errors);
	}
}

static void a_failed_step_gives_its_first_reason_again_in_the_later_callbacks(void)
{
	node.missing_point = "/sys";
	CHECK(enter() < 0);
	node.errors[0] = '\0';
	CHECK(slurm_spank_user_init(NULL, USUAL) < 0);
	CHECK(said("not inside the jail"));
	CHECK(said("mount point /mnt/jail/sys is missing"));
}

/* srun shows what comes from slurm_spank_user_init on, and nothing of what comes before. */
static void a_step_that_somebody_watches_is_refused_where_the_reason_is_seen(void)
{
	static const uint32_t watched[] = {0, 7, SLURM_INTERACTIVE_STEP, SLURM_EXTERN_CONT};

	for (size_t i = 0; i < ARRAY_SIZE(watched); i++) {
		restart();
		node.has_step_id = true;
		node.step_id = watched[i];
		node.missing_point = "/sys";
		CHECK(enter() == 0);
		CHECK(!inside_jail);
		CHECK(open_descriptors() == 0);
		node.errors[0] = '\0';
		CHECK(slurm_spank_user_init(NULL, USUAL) < 0);
		CHECK(said("mount point /mnt/jail/sys is missing"));
		CHECK(every_later_callback_refuses());
	}
}

static void a_batch_script_is_refused_before_its_output_is_opened(void)
{
	node.has_step_id = true;
	node.step_id = SLURM_BATCH_SCRIPT;
	node.missing_point = "/sys";
	check_refused(enter(), "mount point /mnt/jail/sys is missing");
}

static void a_task_is_refused_when_the_jail_was_never_entered(void)
{
	CHECK(every_later_callback_refuses());
	CHECK(said("never entered"));
}

static void outside_a_step_nothing_happens(void)
{
	char *nonsense[] = {"nonsense"};

	node.remote = 0;
	CHECK(slurm_spank_init_post_opt(NULL, 1, nonsense) == 0);
	CHECK(every_later_callback_accepts());
	CHECK(node.n_calls == 0 && node.n_errors == 0);
}

static void an_unknown_context_is_refused(void)
{
	node.remote = -1;
	check_refused(enter(), "whether this is a step");
	CHECK(node.n_calls == 0);
}

static void a_step_without_job_or_user_is_refused(void)
{
	node.no_job_id = true;
	check_refused(enter(), "job's number");
	restart();
	node.no_uid = true;
	check_refused(enter(), "job's user");
	CHECK(node.n_calls == 0);
}

static void a_missing_mount_point_is_named(void)
{
	node.missing_point = "/proc";
	check_refused(enter(), "mount point /mnt/jail/proc is missing in the jail");
	CHECK(said("a directory"));
	restart();
	node.missing_point = "/etc/hosts";
	check_refused(enter(), "mount point /mnt/jail/etc/hosts is missing in the jail");
	CHECK(said("a file"));
}

static void a_symbolic_link_as_mount_point_is_refused(void)
{
	node.linked_point = "/tmp";
	check_refused(enter(), "/mnt/jail/tmp leads through a symbolic link");
}

static void a_directory_where_a_file_is_bound_is_refused(void)
{
	node.directory_point = "/mnt/jail/etc/hosts";
	check_refused(enter(), "/mnt/jail/etc/hosts is a directory");
}

static void directories_that_another_step_made_are_used(void)
{
	node.directories_exist = true;
	CHECK(enter() == 0);
	CHECK(called_with("fchmod /scratch/slurm-jobs/123.2000/tmp 1777"));
}

static void a_directory_of_someone_else_is_refused(void)
{
	node.directories_exist = true;
	node.directory_owner = 1000;
	check_refused(enter(), "slurm-jobs below /scratch belongs to user 1000");
}

static void a_private_directory_that_others_can_enter_is_refused(void)
{
	node.directories_exist = true;
	node.directory_mode = 0711;
	check_refused(enter(), "slurm-jobs below /scratch is open to others (mode 0711)");
}

static void the_largest_numbers_of_job_and_user_fit(void)
{
	node.job_id = UINT32_MAX;
	node.uid = (uid_t)UINT32_MAX;
	CHECK(enter() == 0);
	CHECK(called_with("openat /scratch/slurm-jobs/4294967295.4294967295"));
}

/* ---- options ---- */

static void an_option_that_is_wrong_is_refused_before_anything_is_done(void)
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
	check_option_refused("jail=/again", "jail= is given twice");
	check_option_refused("scratch=/again", "scratch= is given twice");
}

static void names_with_dots_are_paths_like_any(void)
{
	char *options[] = {"jail=/mnt/jail", "scratch=/scratch", "bind=/run/..x/.y/z.."};

	CHECK(slurm_spank_init_post_opt(NULL, 3, options) == 0);
	CHECK(called_with("openat2 /mnt/jail/run/..x/.y/z.."));
}

static void jail_and_scratch_are_required(void)
{
	char *no_jail[] = {"scratch=/scratch"};
	char *no_scratch[] = {"jail=/mnt/jail"};

	check_refused(slurm_spank_init_post_opt(NULL, 1, no_jail), "jail= is missing");
	restart();
	check_refused(slurm_spank_init_post_opt(NULL, 1, no_scratch), "scratch= is missing");
	restart();
	check_refused(slurm_spank_init_post_opt(NULL, 0, NULL), "jail= is missing");
	CHECK(node.n_calls == 0);
}

static void shm_can_be_elsewhere(void)
{
	char *options[] = {"jail=/mnt/jail", "scratch=/scratch", "shm=/memory"};

	CHECK(slurm_spank_init_post_opt(NULL, 3, options) == 0);
	CHECK(called_with("move_mount /memory/slurm-jobs/123.2000/shm on /mnt/jail/dev/shm"));
}

static void more_binds_than_fit_are_refused(void)
{
	char *options[MAX_BINDS + 3] = {"jail=/mnt/jail", "scratch=/scratch"};

	for (size_t i = 2; i < ARRAY_SIZE(options); i++)
		options[i] = "bind=/run/munge";
	check_refused(slurm_spank_init_post_opt(NULL, MAX_BINDS + 3, options), "more than 64");
	CHECK(node.n_calls == 0);
}

static void a_path_as_long_as_the_system_takes_is_used_whole_and_a_longer_one_refused(void)
{
	static char option[PATH_MAX + 16];
	char *options[] = {"jail=/mnt/jail", "scratch=/scratch", option};

	memset(option, 'x', sizeof(option));
	memcpy(option, "bind=/", 6);
	option[5 + PATH_MAX - 1] = '\0';
	node.missing_point = option + 5;
	check_refused(slurm_spank_init_post_opt(NULL, 3, options), option + 5);
	CHECK(said(strerror(ENOENT)));

	restart();
	option[5 + PATH_MAX - 1] = 'x';
	option[5 + PATH_MAX] = '\0';
	check_refused(slurm_spank_init_post_opt(NULL, 3, options), "expected an absolute path");
	CHECK(node.n_calls == 0);
}

/* ---- slurmd starts ---- */

static void slurmd_starts_on_a_complete_jail_and_nothing_is_changed(void)
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

static void slurmd_does_not_start_when_anything_is_wrong_with_the_jail(void)
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
		CHECK(said(strerror(EIO)) && said(node.failed_about));
		CHECK(open_descriptors() == 0);
	}
}

static void slurmd_does_not_start_with_a_wrong_option(void)
{
	char *options[] = {"jail=/mnt/jail", "scratch=/scratch", "nonsense"};

	node.context = S_CTX_SLURMD;
	CHECK(slurm_spank_init(NULL, 3, options) < 0);
	CHECK(said("unknown option nonsense"));
}

static void clients_load_the_plugin_whatever_the_options(void)
{
	char *options[] = {"nonsense"};
	const spank_context_t contexts[] = {S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_JOB_SCRIPT};

	for (size_t i = 0; i < ARRAY_SIZE(contexts); i++) {
		node.context = contexts[i];
		CHECK(slurm_spank_init(NULL, 1, options) == 0);
	}
	CHECK(node.n_calls == 0 && node.n_errors == 0);
}

/* ---- the end of a job, on real directories ---- */

static char root[] = "/tmp/test-chroot-XXXXXX";
static char scratch_option[64], shm_option[64];
static char *real_options[] = {"jail=/mnt/jail", scratch_option, shm_option};
#define REAL 3, real_options

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

static void make_job(const char *name)
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

static void the_epilog_removes_the_directories_of_its_own_job_only(void)
{
	use_real_files();
	make_job("123.2000");
	make_job("123.2001");
	make_job("12.2000");
	make_job("1234.2000");
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(node.n_errors == 0);
	CHECK(!exists("scratch/slurm-jobs/123.2000") && !exists("shm/slurm-jobs/123.2000"));
	CHECK(!exists("scratch/slurm-jobs/123.2001") && !exists("shm/slurm-jobs/123.2001"));
	CHECK(exists("scratch/slurm-jobs/12.2000/tmp/file"));
	CHECK(exists("shm/slurm-jobs/1234.2000/tmp/file"));
}

static void the_epilog_follows_no_symbolic_link(void)
{
	char target[PATH_MAX];

	use_real_files();
	make_job("123.2000");
	make_directory("precious");
	make_file("precious/file");
	(void)snprintf(target, sizeof(target), "%s/precious", root);
	CHECK(symlink(target, below_root("scratch/slurm-jobs/123.2000/link")) == 0);
	CHECK(symlink(target, below_root("scratch/slurm-jobs/123.2000/tmp/link")) == 0);
	CHECK(symlink(target, below_root("scratch/slurm-jobs/123.9")) == 0);
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(!exists("scratch/slurm-jobs/123.2000"));
	CHECK(exists("precious/file"));
	CHECK(said("123.9"));
}

static void the_epilog_removes_what_a_user_nested_deeper_than_any_path(void)
{
	int fd;

	use_real_files();
	make_job("123.2000");
	/* The names that what is moved up would get are taken already. */
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
	CHECK(!exists("scratch/slurm-jobs/123.2000"));
}

static void what_cannot_be_removed_is_logged_and_does_not_fail_the_job(void)
{
	use_real_files();
	make_job("123.2000");
	node.unremovable = "file";
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(said("scratch/slurm-jobs/123.2000: ") && said("shm/slurm-jobs/123.2000: "));
	CHECK(said(strerror(EBUSY)));
	node.unremovable = NULL;
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(!exists("scratch/slurm-jobs/123.2000"));
}

static void the_epilog_of_a_job_that_ran_no_step_is_silent(void)
{
	use_real_files();
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(node.n_errors == 0);
}

static void the_epilog_says_what_it_could_not_do(void)
{
	char *wrong[] = {"nonsense"};

	use_real_files();
	CHECK(rmdir(below_root("shm")) == 0);
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(said("/shm on the node: ") && node.n_errors == 1);

	node.no_job_id = true;
	CHECK(slurm_spank_job_epilog(NULL, REAL) == 0);
	CHECK(said("nothing is removed"));
	CHECK(slurm_spank_job_epilog(NULL, 1, wrong) == 0);
	CHECK(said("unknown option nonsense"));
}

/* ---- */

#define TEST(name) {#name, name}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	TEST(the_mounts_come_in_order_and_the_old_root_goes_last),
	TEST(whichever_call_fails_the_step_is_refused_and_nothing_is_called_after_it),
	TEST(a_failed_step_gives_its_first_reason_again_in_the_later_callbacks),
	TEST(a_step_that_somebody_watches_is_refused_where_the_reason_is_seen),
	TEST(a_batch_script_is_refused_before_its_output_is_opened),
	TEST(a_task_is_refused_when_the_jail_was_never_entered),
	TEST(outside_a_step_nothing_happens),
	TEST(an_unknown_context_is_refused),
	TEST(a_step_without_job_or_user_is_refused),
	TEST(a_missing_mount_point_is_named),
	TEST(a_symbolic_link_as_mount_point_is_refused),
	TEST(a_directory_where_a_file_is_bound_is_refused),
	TEST(directories_that_another_step_made_are_used),
	TEST(a_directory_of_someone_else_is_refused),
	TEST(a_private_directory_that_others_can_enter_is_refused),
	TEST(the_largest_numbers_of_job_and_user_fit),
	TEST(an_option_that_is_wrong_is_refused_before_anything_is_done),
	TEST(names_with_dots_are_paths_like_any),
	TEST(jail_and_scratch_are_required),
	TEST(shm_can_be_elsewhere),
	TEST(more_binds_than_fit_are_refused),
	TEST(a_path_as_long_as_the_system_takes_is_used_whole_and_a_longer_one_refused),
	TEST(slurmd_starts_on_a_complete_jail_and_nothing_is_changed),
	TEST(slurmd_does_not_start_when_anything_is_wrong_with_the_jail),
	TEST(slurmd_does_not_start_with_a_wrong_option),
	TEST(clients_load_the_plugin_whatever_the_options),
	TEST(the_epilog_removes_the_directories_of_its_own_job_only),
	TEST(the_epilog_follows_no_symbolic_link),
	TEST(the_epilog_removes_what_a_user_nested_deeper_than_any_path),
	TEST(what_cannot_be_removed_is_logged_and_does_not_fail_the_job),
	TEST(the_epilog_of_a_job_that_ran_no_step_is_silent),
	TEST(the_epilog_says_what_it_could_not_do),
};

static void remove_root(void)
{
	reset_node();
	node.real_files = true;
	if (remove_tree(AT_FDCWD, root) < 0)
		printf("cannot remove %s: %s\n", root, strerror(errno));
}

int main(void)
{
	unsigned int failed = 0;

	for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
		memcpy(root + strlen(root) - 6, "XXXXXX", 6);
		if (mkdtemp(root) == NULL) {
			perror(root);
			return 1;
		}
		failures_in_test = 0;
		restart();
		tests[i].run();
		remove_root();
		printf("%s %s\n", failures_in_test == 0 ? "ok  " : "FAIL", tests[i].name);
		failed += failures_in_test != 0;
	}
	printf("%zu passed, %u failed\n", ARRAY_SIZE(tests) - failed, failed);
	return failed == 0 ? 0 : 1;
}

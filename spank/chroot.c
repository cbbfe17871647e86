/*
 * chroot: a SPANK plugin that puts every step of a job into the shared root file system ("the
 * jail") of the cluster, and apart from all other jobs. slurmstack-chroot(8) has its options.
 *
 * What a job shares on a node, its mount, ipc and pid namespaces, is made once, by its first step,
 * and kept by a process of its own (keeper.c); the later steps join it. Nothing of it is ever
 * seen in the namespaces of slurmd, so that there is nothing to undo when a step fails half-way.
 *
 * slurmstepd moves in slurm_spank_init_post_opt, not in the task: it opens the files of a job's
 * standard streams itself, and they have to be those that the user means. Other threads of it stay
 * where they are, and so do its open files and its process id. All of these are in the node's
 * /proc, and a path through that would lead out of the jail: "/proc/self/task/<thread>/root". The
 * main thread alone opens paths that a user chose. So /proc is empty for it until the tasks are
 * due. Until then, it also has no more capabilities than the job.
 *
 * From slurm_spank_user_init on, it opens no more of these paths, and sees the node's /proc again,
 * by which it signals the tasks and counts what they use. What it forks from then on, be it a task
 * or a script of the user, is put into the job's pid namespace and sees the job's mounts: a
 * process cannot change its own pid namespace, only that of its children, and cannot start threads
 * while it differs (pid_namespaces(7)). That is why it is done around fork() itself.
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
#include "capabilities.h"
#include "cgroups.h"
#include "files.h"
#include "keeper.h"
#include "mounts.h"
#include "options.h"
#include "preload.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Everything is hidden but what Slurm looks up by name. */
#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#include <slurm/spank.h>
SPANK_PLUGIN(chroot, 1)
#pragma GCC visibility pop

/* Not on the stack, for it holds the text of a file. Each callback parses anew: it may be one
 * of another process. */
static struct config config;
/* True once this slurmstepd is inside the jail. */
static bool inside_jail = false;
static bool of_root = false;
/* The job's keeper, and this process itself, as pidfds. */
static int keeper_fd = -1;
static int own_fd = -1;
/*
 * The group that limits how many processes the job has; -1 where nothing limits them. What its
 * processes have to join for it; -1 where they need not.
 */
static int limits_fd = -1;
static int processes_fd = -1;
/* The group that slurmstepd has left, and its later forks join; -1 where it has left none. */
static int step_group_fd = -1;
static struct own_trees own_trees = {-1, -1, -1, -1};

/* A value of nice(2): jobs go first. */
#define LOWEST_PRIORITY 19
/* With the highest score, this process is the first that the kernel ends (proc(5)). */
#define OOM_SCORE "/proc/self/oom_score_adj"
#define OOM_FIRST 1000

/* ---- entering the job ---- */

/* Joins the namespaces that an earlier step of the job has made. */
static int join_job(void)
{
	/* A process that shares its root with threads cannot change it, so it stops to share. */
	if (unshare(CLONE_FS) < 0)
		return refuse("cannot leave the root of other threads: %s", strerror(errno));
	if (setns(keeper_fd, JOB_NAMESPACES) < 0)
		return refuse("cannot join the namespaces of the job: %s", strerror(errno));
	return ACCEPTED;
}

static int make_job(int job_fd, const char *job_name, uid_t uid)
{
	int group_fd, proc_fd = -1, rc;

	/* Before it sees what the job sees, which is read-only. */
	rc = open_node_group(&group_fd);
	if (rc == ACCEPTED)
		rc = make_root(&config, job_name, &proc_fd);
	if (rc == ACCEPTED)
		rc = start_keeper(job_fd, proc_fd, group_fd, uid, &keeper_fd);
	close_fd(&proc_fd);
	close_fd(&group_fd);
	return rc;
}

/* Makes what the job shares on this node, or joins it; steps that start together take turns. */
static int share_job(int job_fd, const char *job_name, uid_t uid)
{
	int rc;

	while (flock(job_fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return refuse("cannot lock the job's directory below %s: %s",
				      config.scratch, strerror(errno));
	rc = find_keeper(job_fd, &keeper_fd);
	if (rc == ACCEPTED)
		rc = keeper_fd < 0 ? make_job(job_fd, job_name, uid) : join_job();
	/* Not left to close(): a copy of the descriptor may live on in another process. */
	(void)flock(job_fd, LOCK_UN);
	return rc;
}

/* Before Slurm opens paths that the user chose. */
static int prepare_for_paths(uid_t uid)
{
	if (enter_own_view(&config, &own_trees) < 0)
		return REFUSED;
	/* Slurm itself takes those of other users away, with their effective id. */
	if (uid == 0 && lower_capabilities() < 0)
		return refuse("cannot lower capabilities: %s", strerror(errno));
	return ACCEPTED;
}

/* After that, or where it fails. */
static int return_from_paths(void)
{
	struct capabilities old;
	int rc;

	if (take_up_capabilities(&old) < 0)
		return refuse("cannot take up capabilities: %s", strerror(errno));
	rc = return_to_node(&config, &own_trees);
	/* In a job of root's nothing else gives back what was lowered. */
	if (geteuid() != 0 && lay_down_capabilities(&old) < 0)
		return refuse("cannot lay down capabilities: %s", strerror(errno));
	return rc;
}

static int enter_job(const char *job_name, uint32_t job_id, uid_t uid)
{
	int rc = REFUSED;
	int job_fd = open_job(config.scratch, job_name);

	if (job_fd < 0)
		return REFUSED;
	own_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (own_fd < 0) {
		(void)refuse("cannot open this process: %s", strerror(errno));
		goto out;
	}
	if (config.processes > 0 &&
	    limit_processes(job_id, config.processes, &limits_fd, &processes_fd) < 0)
		goto out;
	if (copy_own_trees(&config, job_fd, uid, &own_trees) < 0 ||
	    share_job(job_fd, job_name, uid) < 0)
		goto out;
	rc = prepare_for_paths(uid);
out:
	close_fd(&job_fd);
	if (rc < 0) {
		close_own_trees(&own_trees);
		close_fd(&keeper_fd);
		close_fd(&own_fd);
		close_fd(&limits_fd);
		close_fd(&processes_fd);
	}
	return rc;
}

/* ---- what slurmstepd forks for the job ---- */

/* True in the thread that forks tasks, from when they are due. */
static _Thread_local bool forks_into_job = false;
/* Whether the fork that goes on puts its child into the job's pid namespace. */
static _Thread_local bool fork_is_inside = false;
/* True in a process that was put into the job: below slurmstepd, nothing else runs. */
static bool in_job = false;

/* Joins namespaces of another process, whatever the effective user. Sets errno. */
static int join_namespaces(int process_fd, int kinds)
{
	struct capabilities old;
	int rc, error;

	if (take_up_capabilities(&old) < 0)
		return -1;
	rc = setns(process_fd, kinds);
	error = errno;
	if (lay_down_capabilities(&old) < 0)
		return -1;
	errno = error;
	return rc;
}

static void before_fork(void)
{
	if (!forks_into_job)
		return;
	fork_is_inside = join_namespaces(keeper_fd, CLONE_NEWPID) == 0;
	if (!fork_is_inside)
		(void)refuse("cannot join the pid namespace of the job: %s", strerror(errno));
}

static void after_fork_in_parent(void)
{
	if (!forks_into_job)
		return;
	if (join_namespaces(own_fd, CLONE_NEWPID) < 0)
		(void)refuse("cannot return to the pid namespace of the node: %s",
			     strerror(errno));
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* Skips as many steps if what was loaded is, or is not, `value`. */
#define IF_IS(value, steps) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, steps, 0)
#define UNLESS_HAS(bits, steps) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, steps)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define FAIL(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))

/*
 * On cgroups of version 2, Slurm guards devices by a program within the kernel, so that slurmd and
 * slurmstepd may call bpf(2). What they run for users may not.
 *
 * In a user namespace, a job may mount cgroups again, writable, once it has a namespace of
 * cgroups. Those of its node are root's, so that root's jobs get none. The flags of clone3(2)
 * cannot be seen; for ENOSYS the C library calls clone(2) instead.
 */
static int forbid_calls(void)
{
	static struct sock_filter steps[] = {
		LOAD(nr),
		IF_IS(SYS_bpf, 6),
		IF_IS(SYS_clone3, 7),
		IF_IS(SYS_clone, 2),
		IF_IS(SYS_unshare, 1),
		ALLOW,
		LOAD(args[0]),
		UNLESS_HAS(CLONE_NEWCGROUP, 1),
		FAIL(EPERM),
		ALLOW,
		FAIL(ENOSYS),
	};
	static struct sock_filter steps_of_users[] = {
		LOAD(nr), IF_IS(SYS_bpf, 1), ALLOW, FAIL(EPERM),
	};
	const struct sock_fprog filter = {
		.len = of_root ? ARRAY_SIZE(steps) : ARRAY_SIZE(steps_of_users),
		.filter = of_root ? steps : steps_of_users,
	};
	struct capabilities old;
	int rc = ACCEPTED;

	if (take_up_capabilities(&old) < 0)
		return refuse("cannot take up capabilities: %s", strerror(errno));
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) < 0)
		rc = refuse("cannot forbid system calls: %s", strerror(errno));
	if (lay_down_capabilities(&old) < 0)
		return refuse("cannot lay down capabilities: %s", strerror(errno));
	return rc;
}

static int enter_as_child(void)
{
	char directory[PATH_MAX];

	if (!fork_is_inside)
		return REFUSED;
	/* Slurm adds tasks to their groups itself, but no script that it runs after them. */
	if (step_group_fd >= 0 && join_group(step_group_fd, 0) < 0)
		return REFUSED;
	if (processes_fd >= 0 && join_group(processes_fd, 0) < 0)
		return REFUSED;
	if (limits_fd >= 0 && check_number(limits_fd) < 0)
		return REFUSED;
	if (forbid_calls() < 0)
		return REFUSED;
	if (getcwd(directory, sizeof(directory)) == NULL)
		return refuse("cannot tell the working directory: %s", strerror(errno));
	if (join_namespaces(keeper_fd, JOB_NAMESPACES) < 0)
		return refuse("cannot join the namespaces of the job: %s", strerror(errno));
	/* To join moves to the root. Slurm itself complains where it needs another directory. */
	(void)!chdir(directory);
	if (!config.no_new_privs)
		return ACCEPTED;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return refuse("cannot forbid new privileges: %s", strerror(errno));
	if (give_up_capabilities() < 0)
		return refuse("cannot give up capabilities: %s", strerror(errno));
	return ACCEPTED;
}

static void after_fork_in_child(void)
{
	if (!forks_into_job)
		return;
	/* The reason is in the log, and srun shows it. */
	if (enter_as_child() < 0)
		_exit(1);
	in_job = true;
	forks_into_job = false;
}

/* ---- what Slurm calls ---- */

/*
 * In slurmd: a wrong plugstack.conf or an incomplete jail keeps the node from starting, so
 * that few users ever meet it. So does a missing library, without which slurmd and slurmstepd would
 * do as root what users want: ld.so only warns of that.
 */
int slurm_spank_init(spank_t spank, int ac, char **av)
{
	(void)spank;
	if (spank_context() != S_CTX_SLURMD)
		return ACCEPTED;
	if (flag_of_preload() == NULL)
		return refuse("preload.so is not loaded: slurmd is to be started with it in "
			      "LD_PRELOAD, as the worker's image does");
	name_slurmd(getpid());
	if (parse_options(&config, ac, av) < 0)
		return REFUSED;
	return check_jail(&config);
}

/* Whether this is the step that Slurm itself begins with a job, and that runs nothing of it. */
static bool is_external(spank_t spank)
{
	uint32_t step_id;

	return spank_get_item(spank, S_JOB_STEPID, &step_id) == ESPANK_SUCCESS &&
	       step_id == SLURM_EXTERN_CONT;
}

static int ask_job_id(spank_t spank, uint32_t *job_id)
{
	return spank_get_item(spank, S_JOB_ID, job_id) == ESPANK_SUCCESS
		       ? ACCEPTED
		       : refuse("Slurm does not tell the job's number");
}

static int enter(spank_t spank, int ac, char **av)
{
	char job_name[JOB_NAME_SIZE];
	uint32_t job_id, step_id;
	uint64_t n_steps;
	uid_t uid;

	if (parse_options(&config, ac, av) < 0)
		return REFUSED;
	if (ask_job_id(spank, &job_id) < 0)
		return REFUSED;
	if (spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS)
		return refuse("Slurm does not tell the job's user");
	of_root = uid == 0;
	format_job_name(job_name, job_id, uid);
	if (spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS)
		return refuse("Slurm does not tell the step's number");
	if (give_socket(config.spool, job_id, step_id, uid, &n_steps) < 0)
		return REFUSED;
	if (config.steps > 0 && n_steps > config.steps)
		return refuse("the job has as many steps as it may have at once on this node: %" PRIu64,
			      config.steps);
	if (enter_job(job_name, job_id, uid) < 0)
		return REFUSED;
	/* It opens no path of the user's and is not called again, but runs a program of the jail. */
	if (is_external(spank)) {
		if (return_from_paths() < 0)
			return REFUSED;
		forks_into_job = true;
	}
	if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
		return refuse("cannot be called at forks: no memory");
	return ACCEPTED;
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char **av)
{
	int remote = spank_remote(spank);

	if (remote == 0)
		return ACCEPTED;
	if (remote < 0)
		return refuse("Slurm does not say whether this is a step");
	open_log_of_slurmd();
	inside_jail = enter(spank, ac, av) == ACCEPTED;
	close_log_of_slurmd();
	/*
	 * At once, before Slurm opens paths of the user's outside the jail. Where the external step
	 * fails, the others do as well; and were it refused, Slurm would take the node for broken.
	 */
	return inside_jail || is_external(spank) ? ACCEPTED : REFUSED;
}

/* No task starts in a step that was refused, whether or not Slurm was told so before. */
static int check(spank_t spank, bool inside)
{
	if (spank_remote(spank) == 0 || inside)
		return ACCEPTED;
	return refuse("the step is not inside the jail and will not start: %s",
		      refusal[0] != '\0' ? refusal : "the jail was never entered");
}

/* The last callback before slurmstepd forks the tasks, and in the thread that does. */
int slurm_spank_user_init(spank_t spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	if (spank_remote(spank) != 0 && inside_jail)
		forks_into_job = return_from_paths() == ACCEPTED;
	return check(spank, forks_into_job);
}

/*
 * slurmstepd leaves its step's group: see open_daemons_group. Not before, since Slurm puts it back
 * there when it makes the groups of the first task; no task runs yet.
 */
static int leave_step_group(spank_t spank)
{
	uint32_t job_id;
	int daemons_fd, rc;

	if (step_group_fd >= 0)
		return ACCEPTED;
	if (ask_job_id(spank, &job_id) < 0)
		return REFUSED;
	rc = open_daemons_group(job_id, &daemons_fd);
	if (rc == ACCEPTED && daemons_fd >= 0)
		rc = open_step_group(&step_group_fd);
	if (rc == ACCEPTED && step_group_fd >= 0)
		rc = join_group(daemons_fd, 0);
	close_fd(&daemons_fd);
	return rc;
}

/* In slurmstepd, after each fork of a task. */
int slurm_spank_task_post_fork(spank_t spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	if (spank_remote(spank) == 0 || !forks_into_job)
		return ACCEPTED;
	return leave_step_group(spank);
}

/*
 * If the node runs out of memory, the kernel ends tasks first, and no daemon. A user may lower this
 * again, but not below what the daemons have.
 */
static int go_first(void)
{
	int rc = ACCEPTED, fd = open(OOM_SCORE, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || dprintf(fd, "%d", OOM_FIRST) < 0)
		rc = refuse("cannot write " OOM_SCORE ": %s", strerror(errno));
	close_fd(&fd);
	return rc;
}

/* After Slurm has set another score. */
int slurm_spank_task_init_privileged(spank_t spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	if (spank_remote(spank) != 0 && in_job && go_first() < 0)
		return REFUSED;
	return check(spank, in_job);
}

/* slurmstepd opens them where cgroups are writable, and a directory leads to all files in it. */
static int check_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (is_of_cgroup(fd))
			return refuse("--input, --output or --error is of a cgroup");
	return ACCEPTED;
}

int slurm_spank_task_init(spank_t spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	if (spank_remote(spank) != 0 && in_job && check_streams() < 0)
		return REFUSED;
	return check(spank, in_job);
}

/* A step whose files could not be opened starts no task, and Slurm removes what it made for it. */
int slurm_spank_exit(spank_t spank, int ac, char **av)
{
	(void)spank;
	(void)ac;
	(void)av;
	return own_trees.node_proc < 0 ? ACCEPTED : return_from_paths();
}

/*
 * Detaches this process from slurmd, which waits until the epilog's output is closed, and kills the
 * process group of an epilog that times out. The process changes its name because checks count each
 * slurmstepd as a step.
 */
static void leave_slurm(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)setsid();
	(void)prctl(PR_SET_NAME, "remove-ended", 0, 0, 0);
	(void)dup2(null, STDOUT_FILENO);
	(void)dup2(null, STDERR_FILENO);
}

/*
 * The node takes no job before the epilog ends, and removal may take minutes: a job can leave many
 * files, and another job can add more through directories that it holds open. Groups of the job
 * stay until its slurmstepd processes have ended.
 */
static void remove_behind_slurm(uint32_t job_id)
{
	const char *const bases[2] = {config.scratch, config.shm};
	pid_t pid = fork();

	if (pid > 0)
		return;
	if (pid == 0)
		leave_slurm();
	remove_groups(job_id);
	if (pid == 0)
		(void)!nice(LOWEST_PRIORITY);
	remove_ended(bases);
	if (pid == 0)
		_exit(0);
}

/*
 * Ends what is left of the job and removes its private directories. What cannot be removed is
 * logged and left: an error here would drain the node for files that only root can reach and
 * that no other user's job will ever be given, and a disk that really fails shows in the node's
 * checks.
 */
int slurm_spank_job_epilog(spank_t spank, int ac, char **av)
{
	uint32_t job_id;

	if (parse_options(&config, ac, av) < 0)
		return ACCEPTED;
	if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS) {
		slurm_error("chroot: Slurm does not tell the job's number: nothing is removed");
		return ACCEPTED;
	}
	/* The parent is slurmd, and the environment is the job's, without the number of slurmd. */
	name_slurmd(getppid());
	open_log_of_slurmd();
	end_job(config.scratch, job_id);
	end_job(config.shm, job_id);
	remove_behind_slurm(job_id);
	close_log_of_slurmd();
	return ACCEPTED;
}

/*
 * chroot: SPANK plugin that runs each step of a job in the cluster's shared root file system ("the
 * jail"), isolated from all other jobs. slurmstack-chroot(8) describes its options.
 *
 * The steps of a job share mount, ipc and pid namespaces on a node. The first step creates them, a
 * keeper process (keeper.c) keeps them, and later steps join them. The mounts never appear in
 * slurmd's namespaces, so a step that fails half-way leaves nothing to undo.
 *
 * slurmstepd itself enters the jail before it starts the tasks, in slurm_spank_init_post_opt. The
 * reason is that slurmstepd opens the files of the step's standard streams, which must be files of
 * the jail. The other threads of slurmstepd, its open files and its process id stay on the node.
 * All of them appear in the node's /proc. There, a path such as "/proc/self/task/<thread>/root"
 * leads out of the jail. Only the main thread opens paths that a user chose. So until slurmstepd
 * starts the tasks, the main thread sees an empty /proc, and has only the capabilities that the job
 * has.
 *
 * After slurm_spank_user_init, slurmstepd opens no more paths that a user chose. It sees the node's
 * /proc again, with which it signals the tasks and measures their usage. The processes that it
 * forks later (tasks, and scripts of the user) join the job's pid namespace and see the job's
 * mounts. A process can change the pid namespace of its children, but not its own pid namespace.
 * While the two namespaces differ, the process cannot start threads (pid_namespaces(7)). So the
 * plugin changes the namespace before each fork() and restores it afterwards.
 *
 * Users can change the jail. Root can also change it in a job, if a site permits jobs of root. So
 * the plugin never resolves the name of a path in the jail from outside the jail. It opens each
 * mount point with openat2(2) relative to the jail, and follows no symbolic link. It then attaches
 * trees of mounts to the resulting descriptor (move_mount(2), Linux 5.12 and later). On the node,
 * the plugin uses directories that only root can enter.
 *
 * Every failure returns a negative code: Slurm would treat a positive code as success, and the step
 * would run outside the jail.
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
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Export only the symbols that Slurm looks up. */
#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#include <slurm/spank.h>
SPANK_PLUGIN(chroot, 1)
#pragma GCC visibility pop

/*
 * The parsed options. They are too large for the stack. Each callback parses the options again,
 * because callbacks may run in different processes.
 */
static struct config config;
/* True once this slurmstepd is inside the jail. */
static bool inside_jail = false;
static bool of_root = false;
/* pidfds of the job's keeper and of this process. */
static int keeper_fd = -1;
static int own_fd = -1;
/* The cgroups that limit_processes returns. */
static int limits_fd = -1;
static int processes_fd = -1;
/*
 * The cgroup that slurmstepd has left, and that the processes it forks later must join; -1 if there
 * is none.
 */
static int step_group_fd = -1;
static struct own_trees own_trees = {-1, -1, -1, -1};

/* A file for each job of this node that holds resources for pods of Kubernetes. */
#define PODS_RUN "/run/slurmstack/pods"
/* Value for nice(2), so that jobs have priority over the removal of files. */
#define LOWEST_PRIORITY 19
/* If memory is exhausted, the kernel first kills the process with the highest score (proc(5)). */
#define OOM_SCORE "/proc/self/oom_score_adj"
#define OOM_FIRST 1000

/* ---- entering the job ---- */

/* Joins the namespaces that an earlier step of the job has created. */
static int join_job(void)
{
	/* setns(2) changes the root, which this thread must not share with other threads. */
	if (unshare(CLONE_FS) < 0)
		return refuse("cannot unshare the root from other threads: %s", strerror(errno));
	if (setns(keeper_fd, JOB_NAMESPACES) < 0)
		return refuse("cannot join the namespaces of the job: %s", strerror(errno));
	return ACCEPTED;
}

static int make_job(int job_fd, const char *job_name, uid_t uid)
{
	int group_fd, proc_fd = -1, rc;

	/* Open the cgroup before make_root: in the job's mounts, cgroups are read-only. */
	rc = open_node_group(&group_fd);
	if (rc == ACCEPTED)
		rc = make_root(&config, job_name, &proc_fd);
	if (rc == ACCEPTED)
		rc = start_keeper(job_fd, proc_fd, group_fd, uid, &keeper_fd);
	close_fd(&proc_fd);
	close_fd(&group_fd);
	return rc;
}

/* Creates the job's namespaces on this node, or joins them, under a lock. */
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
	/* Unlock explicitly: close() does not unlock if another process has a copy of job_fd. */
	(void)flock(job_fd, LOCK_UN);
	return rc;
}

/* Call this function before Slurm opens paths that the user chose. */
static int prepare_for_paths(uid_t uid)
{
	if (enter_own_view(&config, &own_trees) < 0)
		return REFUSED;
	/* For other users, Slurm itself drops the capabilities with the effective uid. */
	if (uid == 0 && lower_capabilities() < 0)
		return refuse("cannot lower capabilities: %s", strerror(errno));
	return ACCEPTED;
}

/* Call this function when Slurm opens no more paths that the user chose. */
static int return_from_paths(void)
{
	struct capabilities old;
	int rc;

	if (take_up_capabilities(&old) < 0)
		return refuse("cannot raise capabilities: %s", strerror(errno));
	rc = return_to_node(&config, &own_trees);
	/* In a job of root, keep the raised capabilities: nothing else would restore them. */
	if (geteuid() != 0 && lay_down_capabilities(&old) < 0)
		return refuse("cannot restore capabilities: %s", strerror(errno));
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
		(void)refuse("cannot open a pidfd of this process: %s", strerror(errno));
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

/* ---- processes that slurmstepd forks for the job ---- */

/* True in a thread whose children must enter the job. */
static _Thread_local bool forks_into_job = false;
/* Whether the child of the current fork is in the job's pid namespace. */
static _Thread_local bool fork_is_inside = false;
/* True in a child of slurmstepd that the plugin has moved into the job. */
static bool in_job = false;

/*
 * Joins namespaces of a process. Works with any effective uid. Returns -1 with errno on failure.
 */
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
/*
 * IF_IS skips `steps` instructions if the loaded value equals `value`. UNLESS_HAS skips `steps`
 * instructions if the loaded value has none of `bits`.
 */
#define IF_IS(value, steps) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, steps, 0)
#define UNLESS_HAS(bits, steps) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, steps)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define FAIL(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))

/*
 * Forbids bpf(2), which slurmd and slurmstepd may call: with version 2 of cgroups, Slurm restricts
 * devices with a BPF program.
 *
 * Also forbids new cgroup namespaces to jobs of root. With a new user namespace and a new cgroup
 * namespace, a job could mount the node's cgroups. A job of root could also write to them. The
 * filter cannot see the flags of clone3(2). It returns ENOSYS, so the C library calls clone(2).
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
		return refuse("cannot raise capabilities: %s", strerror(errno));
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) < 0)
		rc = refuse("cannot install the seccomp filter: %s", strerror(errno));
	if (lay_down_capabilities(&old) < 0)
		return refuse("cannot restore capabilities: %s", strerror(errno));
	return rc;
}

static int enter_as_child(void)
{
	char directory[PATH_MAX];

	if (!fork_is_inside)
		return REFUSED;
	/* Slurm adds tasks to their cgroups, but not the scripts that it runs after the tasks. */
	if (step_group_fd >= 0 && join_group(step_group_fd, 0) < 0)
		return REFUSED;
	if (processes_fd >= 0 && join_group(processes_fd, 0) < 0)
		return REFUSED;
	if (limits_fd >= 0 && check_number(limits_fd) < 0)
		return REFUSED;
	if (forbid_calls() < 0)
		return REFUSED;
	if (getcwd(directory, sizeof(directory)) == NULL)
		return refuse("cannot determine the working directory: %s", strerror(errno));
	if (join_namespaces(keeper_fd, JOB_NAMESPACES) < 0)
		return refuse("cannot join the namespaces of the job: %s", strerror(errno));
	/*
	 * Return to the working directory, because setns(2) has changed to the root directory. Ignore
	 * errors, because Slurm itself checks the working directory later.
	 */
	(void)!chdir(directory);
	if (!config.no_new_privs)
		return ACCEPTED;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return refuse("cannot set no_new_privs: %s", strerror(errno));
	if (give_up_capabilities() < 0)
		return refuse("cannot drop capabilities: %s", strerror(errno));
	return ACCEPTED;
}

static void after_fork_in_child(void)
{
	if (!forks_into_job)
		return;
	/* srun shows the user the reason that enter_as_child has logged. */
	if (enter_as_child() < 0)
		_exit(1);
	in_job = true;
	forks_into_job = false;
}

/* ---- callbacks of Slurm ---- */

/*
 * Prevents slurmd from starting if plugstack.conf is wrong or the jail is incomplete, so that
 * users' steps do not fail instead. Also requires preload.so, because ld.so only warns if this
 * library is missing. Without it, users could make slurmd and slurmstepd act for them as root.
 */
int slurm_spank_init(spank_t spank, int ac, char **av)
{
	(void)spank;
	if (spank_context() != S_CTX_SLURMD)
		return ACCEPTED;
	if (flag_of_preload() == NULL)
		return refuse("preload.so is not loaded: start slurmd with it in LD_PRELOAD, as "
			      "the worker image does");
	name_slurmd(getpid());
	if (parse_options(&config, ac, av) < 0)
		return REFUSED;
	return check_jail(&config);
}

/* Whether this is the external step, which Slurm itself starts and which runs no user program. */
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
		       : refuse("Slurm does not provide the job's id");
}

/*
 * node_steps applies only to steps of srun. A job has only few other steps, so the limit on the
 * number of jobs also limits them.
 */
static int check_n_steps(uint32_t step_id, const struct n_steps *n_steps)
{
	if (config.steps > 0 && n_steps->of_job > config.steps)
		return refuse("the job has reached its limit of %" PRIu64
			      " steps at once on this node: start the step when another has ended",
			      config.steps);
	if (config.node_steps > 0 && n_steps->of_node > config.node_steps &&
	    step_id <= SLURM_MAX_NORMAL_STEP_ID)
		return refuse("all jobs together have reached the limit of %" PRIu64
			      " steps at once on this node: start the step again later",
			      config.node_steps);
	return ACCEPTED;
}

/*
 * Refuses steps of users in a job that holds resources for pods of Kubernetes, because the pods use
 * all of them. The prolog creates the mark (components/slurmconf/bridge.py). The batch script of
 * such a job only waits.
 */
static int check_pods(uint32_t job_id, uint32_t step_id)
{
	char mark[sizeof(PODS_RUN) + 16];

	if (step_id == SLURM_BATCH_SCRIPT || step_id == SLURM_EXTERN_CONT)
		return ACCEPTED;
	(void)snprintf(mark, sizeof(mark), PODS_RUN "/%" PRIu32, job_id);
	if (access(mark, F_OK) == 0)
		return refuse("job %" PRIu32 " holds resources for pods of Kubernetes, which use all "
			      "of them: start this program in another job",
			      job_id);
	if (errno != ENOENT)
		return refuse("cannot read %s: %s", mark, strerror(errno));
	return ACCEPTED;
}

static int enter(spank_t spank, int ac, char **av)
{
	char job_name[JOB_NAME_SIZE];
	uint32_t job_id, step_id;
	struct n_steps n_steps;
	uid_t uid;

	if (parse_options(&config, ac, av) < 0)
		return REFUSED;
	if (ask_job_id(spank, &job_id) < 0)
		return REFUSED;
	if (spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS)
		return refuse("Slurm does not provide the job's user");
	of_root = uid == 0;
	format_job_name(job_name, job_id, uid);
	if (spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS)
		return refuse("Slurm does not provide the step's id");
	if (check_pods(job_id, step_id) < 0)
		return REFUSED;
	if (give_socket(config.spool, job_id, step_id, uid, &n_steps) < 0)
		return REFUSED;
	if (check_n_steps(step_id, &n_steps) < 0)
		return REFUSED;
	if (enter_job(job_name, job_id, uid) < 0)
		return REFUSED;
	/* Return now: the external step opens no path of the user, and gets no more callbacks. */
	if (is_external(spank)) {
		if (return_from_paths() < 0)
			return REFUSED;
		forks_into_job = true;
	}
	if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
		return refuse("cannot register fork handlers: out of memory");
	return ACCEPTED;
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char **av)
{
	int remote = spank_remote(spank);

	if (remote == 0)
		return ACCEPTED;
	if (remote < 0)
		return refuse("Slurm does not report whether this process is a step");
	open_log_of_slurmd();
	inside_jail = enter(spank, ac, av) == ACCEPTED;
	close_log_of_slurmd();
	/*
	 * Refuse before Slurm opens paths of the user outside the jail. Accept even a failed external
	 * step, because Slurm would otherwise drain the node. The job's other steps then fail.
	 */
	return inside_jail || is_external(spank) ? ACCEPTED : REFUSED;
}

/* Refuses tasks of a step outside the jail, even if an earlier callback has returned ACCEPTED. */
static int check(spank_t spank, bool inside)
{
	if (spank_remote(spank) == 0 || inside)
		return ACCEPTED;
	return refuse("the step is not inside the jail and will not start: %s",
		      refusal[0] != '\0' ? refusal : "slurmstepd never entered the jail");
}

/* The last callback before slurmstepd forks the tasks. It runs in the thread that forks them. */
int slurm_spank_user_init(spank_t spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	if (spank_remote(spank) != 0 && inside_jail)
		forks_into_job = return_from_paths() == ACCEPTED;
	return check(spank, forks_into_job);
}

/*
 * Moves slurmstepd out of its step's cgroup (see open_daemons_group) before any task runs. Do not
 * call this earlier: Slurm moves slurmstepd back when it creates the first task's cgroups.
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

/* Runs in slurmstepd after each fork of a task. */
int slurm_spank_task_post_fork(spank_t spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	if (spank_remote(spank) == 0 || !forks_into_job)
		return ACCEPTED;
	return leave_step_group(spank);
}

/*
 * Makes the kernel kill this task before Slurm's daemons if the node runs out of memory. A user may
 * lower the score of a task, but not below the score of the daemons.
 */
static int go_first(void)
{
	int rc = ACCEPTED, fd = open(OOM_SCORE, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || dprintf(fd, "%d", OOM_FIRST) < 0)
		rc = refuse("cannot write " OOM_SCORE ": %s", strerror(errno));
	close_fd(&fd);
	return rc;
}

/* Runs after Slurm has set the task's oom_score_adj, which go_first replaces. */
int slurm_spank_task_init_privileged(spank_t spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	if (spank_remote(spank) != 0 && in_job && go_first() < 0)
		return REFUSED;
	return check(spank, in_job);
}

/*
 * Refuses standard streams in cgroups. slurmstepd opens the streams where cgroups are writable, and
 * an open directory would give the task write access to the files in it.
 */
static int check_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (is_of_cgroup(fd))
			return refuse("--input, --output or --error is in a cgroup: choose another "
				      "file");
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

/*
 * Returns to the node if no task was started, for example because slurmstepd could not open a file:
 * Slurm now removes the step's files and cgroups.
 */
int slurm_spank_exit(spank_t spank, int ac, char **av)
{
	(void)spank;
	(void)ac;
	(void)av;
	return own_trees.node_proc < 0 ? ACCEPTED : return_from_paths();
}

/*
 * Detaches this process from slurmd. Otherwise slurmd would wait until this process closes the
 * epilog's output, and would kill the process group of the epilog after a timeout. Renames the
 * process, because the node's checks treat each process named slurmstepd as a step.
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
 * Removes the job's files and cgroups in a child process, because the node accepts no job before
 * the epilog ends. The removal may take minutes: a job can leave many files, and another job can
 * create more in directories that it has open. Cgroups remain until their slurmstepd processes have
 * ended.
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
 * Ends the remaining processes of the job, and removes its private directories. Only logs a failed
 * removal, because an error would drain the node. Jobs of other users never get these files, and
 * the node's checks report a failed disk.
 */
int slurm_spank_job_epilog(spank_t spank, int ac, char **av)
{
	uint32_t job_id;

	if (parse_options(&config, ac, av) < 0)
		return ACCEPTED;
	if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS) {
		slurm_error("chroot: Slurm does not provide the job's id: cannot clean up after the job");
		return ACCEPTED;
	}
	/* The parent is slurmd. The epilog's environment lacks slurmd's pid. */
	name_slurmd(getppid());
	open_log_of_slurmd();
	end_job(config.scratch, job_id);
	end_job(config.shm, job_id);
	remove_behind_slurm(job_id);
	close_log_of_slurmd();
	return ACCEPTED;
}

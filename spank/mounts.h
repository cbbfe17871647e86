/* The view of a job: its root and all mounts in it. */
#ifndef SLURMSTACK_MOUNTS_H
#define SLURMSTACK_MOUNTS_H

#include "options.h"

#include <sched.h>
#include <sys/types.h>

/*
 * Namespaces that slurmstepd itself creates and joins. The ipc namespace isolates System V memory,
 * semaphores and queues, which would otherwise outlive the job.
 */
#define JOB_NAMESPACES (CLONE_NEWNS | CLONE_NEWIPC)

/* Checks that the jail has all mount points that steps require. Mounts nothing. */
int check_jail(const struct config *config);

/*
 * Creates namespaces and the root of a job, and moves this process there. Nothing of the node's
 * root stays mounted. Returns ACCEPTED or REFUSED.
 *
 * /proc stays empty: only a process of the job's pid namespace can mount it. Sets *proc_fd to the
 * mount point of /proc.
 */
int make_root(const struct config *config, const char *job_name, int *proc_fd);

/*
 * Mounts the /proc of this process's pid namespace on an open mount point. Returns ACCEPTED or
 * REFUSED.
 *
 * For root, makes the machine's part of this /proc read-only. Other users cannot write to this part
 * anyway, and need a complete /proc. If parts are hidden or read-only, the kernel refuses to mount
 * a second /proc in a user namespace, which rootless containers require.
 */
int mount_proc(int point_fd, uid_t uid);

/* Additional trees that slurmstepd requires, not yet mounted. -1 means none. */
struct own_trees {
	/*
	 * slurmd's spool directory. MPI libraries create sockets in it before slurmstepd opens any
	 * path of the user. A job of root gets its own directory instead, because root could write
	 * to every path that is visible.
	 */
	int spool;
	/* The node's spool directory, and its /proc, where slurmstepd finds processes to signal. */
	int node_spool;
	int node_proc;
	/* The node's cgroups, with which Slurm confines the job. Jobs see them read-only. */
	int cgroups;
};

/*
 * Copies the trees; call it while this process is in the node's root. `job_fd` is the job's
 * directory below scratch=. Returns ACCEPTED or REFUSED.
 */
int copy_own_trees(const struct config *config, int job_fd, uid_t uid, struct own_trees *trees);

void close_own_trees(struct own_trees *trees);

/*
 * Moves this process to a copy of the job's mount namespace. There, slurmd's spool directory and
 * cgroups are writable, and /proc is empty. Returns ACCEPTED or REFUSED.
 *
 * Do not use the job's own /proc: Slurm signals pids that it finds in /proc, and on the node the
 * same numbers belong to other processes.
 */
int enter_own_view(const struct config *config, struct own_trees *trees);

/*
 * Mounts the node's spool directory and /proc in another copy of the job's mount namespace. After
 * this call, slurmstepd must not open a path of the user. Returns ACCEPTED or REFUSED.
 */
int return_to_node(const struct config *config, struct own_trees *trees);

#endif

/* The root of a job and all mounts in it. */
#ifndef SLURMSTACK_MOUNTS_H
#define SLURMSTACK_MOUNTS_H

#include "options.h"

#include <sched.h>
#include <sys/types.h>

/*
 * The namespaces of a job that slurmstepd itself enters. The ipc namespace isolates the job's
 * System V memory, semaphores and queues, which would otherwise outlive the job.
 */
#define JOB_NAMESPACES (CLONE_NEWNS | CLONE_NEWIPC)

/* Checks that the jail has all mount points that steps require. Mounts nothing. */
int check_jail(const struct config *config);

/*
 * Creates the namespaces and the root of a job, and moves this process into both. Nothing of the
 * node's root stays mounted. Sets *proc_fd to the mount point of /proc, which stays empty: only a
 * process of the job's pid namespace can mount it. Returns ACCEPTED or REFUSED.
 */
int make_root(const struct config *config, const char *job_name, int *proc_fd);

/*
 * Mounts the /proc of this process's pid namespace on an open mount point. Returns ACCEPTED or
 * REFUSED.
 *
 * For a job of root, makes the machine's files in this /proc read-only, by mounts on these files.
 * Other users cannot write to the files, and need no such mounts. The mounts would even break their
 * rootless containers: these mount a second /proc in a user namespace, and the kernel permits this
 * only if the first /proc has no mounts on its files.
 */
int mount_proc(int point_fd, uid_t uid);

/*
 * Descriptors of detached copies of mounts ("trees"), which slurmstepd will attach in its own mount
 * namespace. A descriptor is -1 if the tree does not exist or is already attached.
 */
struct own_trees {
	/*
	 * slurmd's spool directory, in which MPI libraries create sockets before slurmstepd opens any
	 * path of the user. A job of root gets its own directory instead, because root could write to
	 * every visible path.
	 */
	int spool;
	/* The node's spool directory, and its /proc, in which slurmstepd finds processes to signal. */
	int node_spool;
	int node_proc;
	/* The node's cgroups, with which Slurm confines the job. Jobs see them read-only. */
	int cgroups;
};

/*
 * Copies the trees from the node's root, which must be this process's root. `job_fd` is the job's
 * directory below scratch=. Returns ACCEPTED or REFUSED.
 */
int copy_own_trees(const struct config *config, int job_fd, uid_t uid, struct own_trees *trees);

void close_own_trees(struct own_trees *trees);

/*
 * Moves this process to a copy of the job's mount namespace. There, slurmd's spool directory and
 * cgroups are writable, and /proc is empty. Returns ACCEPTED or REFUSED.
 *
 * The job's own /proc would not be safe here. slurmstepd sends signals to the pids that it finds in
 * /proc. The pids in the job's /proc belong to other processes on the node.
 */
int enter_own_view(const struct config *config, struct own_trees *trees);

/*
 * Moves this process to another copy of the job's mount namespace, with the node's spool directory
 * and /proc. After this call, slurmstepd must not open a path of the user. Returns ACCEPTED or
 * REFUSED.
 */
int return_to_node(const struct config *config, struct own_trees *trees);

#endif

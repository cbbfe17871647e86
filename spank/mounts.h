/* What a job sees: its root and all that is mounted in it. */
#ifndef SLURMSTACK_MOUNTS_H
#define SLURMSTACK_MOUNTS_H

#include "options.h"

#include <sched.h>
#include <sys/types.h>

/*
 * Made and joined by slurmstepd itself. That of ipc is for System V's memory, semaphores and
 * queues, which would otherwise outlive the job.
 */
#define JOB_NAMESPACES (CLONE_NEWNS | CLONE_NEWIPC)

/* Whether the jail has all that a step is going to need of it; mounts nothing. */
int check_jail(const struct config *config);

/*
 * Makes the root of a job, in namespaces of its own, and moves this process there;
 * nothing of the node's root stays mounted. /proc stays empty: only a process of the job's pid
 * namespace can mount it, on the descriptor that *proc_fd is set to.
 */
int make_root(const struct config *config, const char *job_name, int *proc_fd);

/*
 * Mounts a /proc of this process's pid namespace on an open mount point. Where it is root's, what
 * is the machine's in there cannot be written. Others may not write it anyway, and need it
 * bare: the kernel lets nobody mount a /proc in a user namespace, as rootless containers do,
 * where parts of the one that is there are hidden or read-only.
 */
int mount_proc(int point_fd, uid_t uid);

/*
 * What slurmstepd needs beside what the job sees: trees that are mounted nowhere yet. -1 means
 * none.
 */
struct own_trees {
	/*
	 * slurmd's spool directory, where libraries for MPI put their sockets before any path of
	 * the user's is opened. A job of root's has a directory of its own there, for root may
	 * write whatever it can name.
	 */
	int spool;
	/* That of the node, and the node's /proc, by which slurmstepd finds what it has to signal. */
	int node_spool;
	int node_proc;
	/* The node's cgroups, which Slurm confines the job by; jobs see them read-only. */
	int cgroups;
};

/* Makes them, on the node. `job_fd` is the job's directory below scratch=. */
int copy_own_trees(const struct config *config, int job_fd, uid_t uid, struct own_trees *trees);

void close_own_trees(struct own_trees *trees);

/*
 * Gives this process a copy of the job's mount namespace, in which slurmd's spool directory and
 * cgroups can be written, and /proc is empty. The job's own /proc will not do: Slurm signals by the
 * numbers that it finds there, and on the node these are other processes.
 */
int enter_own_view(const struct config *config, struct own_trees *trees);

/* Mounts what is the node's there. From now on, slurmstepd may open no path of the user's. */
int return_to_node(const struct config *config, struct own_trees *trees);

#endif

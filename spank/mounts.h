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
 * nothing of the node's root stays mounted. With pid_namespace=yes, /proc stays empty: only a
 * process of that namespace can mount it, on the descriptor that *proc_fd is then set to.
 */
int make_root(const struct config *config, const char *job_name, int *proc_fd);

/*
 * Mounts a /proc of this process's pid namespace on an open mount point. Where it is root's, what
 * is the machine's in there cannot be written. Others may not write it anyway, and need it
 * bare: the kernel lets nobody mount a /proc in a user namespace, as rootless containers do,
 * where parts of the one that is there are hidden or read-only.
 */
int mount_proc(int point_fd, uid_t uid);

/* A detached copy of the node's own /proc; or REFUSED. */
int copy_node_proc(void);

/*
 * Gives this process a copy of the job's mount namespace, in which /proc is the node's.
 * slurmstepd counts in the node's process ids: it finds by them what it has to signal.
 */
int return_to_node_proc(int proc_tree_fd);

#endif

/* Capabilities of the calling thread. All functions return -1 with errno on failure. */
#ifndef SLURMSTACK_CAPABILITIES_H
#define SLURMSTACK_CAPABILITIES_H

#include <linux/capability.h>

struct capabilities {
	struct __user_cap_header_struct header;
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
};

/*
 * Makes all permitted capabilities effective, and saves the earlier state in *old. This works even
 * while slurmstepd acts as a user: it has then changed only its effective uid. Its capabilities are
 * then not effective, but stay permitted. lay_down_capabilities restores *old.
 */
int take_up_capabilities(struct capabilities *old);
int lay_down_capabilities(struct capabilities *old);

/*
 * Reduces the effective capabilities to those of root's jobs, so that slurmstepd opens files for a
 * job of root only with the job's rights. take_up_capabilities restores the other capabilities.
 */
int lower_capabilities(void);

/* Reduces all sets of capabilities to those of root's jobs, permanently. */
int give_up_capabilities(void);

#endif

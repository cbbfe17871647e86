/* Capabilities of the calling thread. All functions return -1 with errno on failure. */
#ifndef SLURMSTACK_CAPABILITIES_H
#define SLURMSTACK_CAPABILITIES_H

#include <linux/capability.h>

struct capabilities {
	struct __user_cap_header_struct header;
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
};

/*
 * Makes all permitted capabilities effective, and saves the earlier ones in *old. slurmstepd
 * becomes a user by the effective uid only: it then has no effective capabilities, but they stay
 * permitted. lay_down_capabilities restores *old.
 */
int take_up_capabilities(struct capabilities *old);
int lay_down_capabilities(struct capabilities *old);

/*
 * Reduces the effective capabilities to those that jobs of root have: for files and for changing
 * users. slurmstepd then opens files for a job of root with no more rights than the job.
 * take_up_capabilities restores the others.
 */
int lower_capabilities(void);

/* Reduces all sets of capabilities to these, permanently. */
int give_up_capabilities(void);

#endif

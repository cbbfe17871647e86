/* The capabilities of the calling thread. All of these set errno and return -1 on failure. */
#ifndef SLURMSTACK_CAPABILITIES_H
#define SLURMSTACK_CAPABILITIES_H

#include <linux/capability.h>

struct capabilities {
	struct __user_cap_header_struct header;
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
};

/*
 * slurmstepd takes on a user by the effective id, and so without effective capabilities. It still
 * owns them: this takes them up, and *old is what to lay down again.
 */
int take_up_capabilities(struct capabilities *old);
int lay_down_capabilities(struct capabilities *old);

/*
 * What slurmstepd opens for a job of root's, it opens with no more than the job has: those that
 * rule files and take on users. They can be taken up again.
 */
int lower_capabilities(void);

/* The same for good. */
int give_up_capabilities(void);

#endif

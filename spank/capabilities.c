#include "capabilities.h"

#include "report.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Capabilities that jobs of root keep: those for access to files, and those for changing users. */
#define OF_FILES_AND_USERS                                                                 \
	(1U << CAP_CHOWN | 1U << CAP_DAC_OVERRIDE | 1U << CAP_FOWNER | 1U << CAP_FSETID |  \
	 1U << CAP_KILL | 1U << CAP_SETGID | 1U << CAP_SETUID | 1U << CAP_SYS_CHROOT)

static int get(struct capabilities *capabilities)
{
	capabilities->header =
		(struct __user_cap_header_struct){.version = _LINUX_CAPABILITY_VERSION_3};
	return (int)syscall(SYS_capget, &capabilities->header, capabilities->data);
}

static int set(struct capabilities *capabilities)
{
	return (int)syscall(SYS_capset, &capabilities->header, capabilities->data);
}

static uint32_t kept(size_t word)
{
	return word == 0 ? OF_FILES_AND_USERS : 0;
}

int take_up_capabilities(struct capabilities *old)
{
	struct capabilities all;

	if (get(old) < 0)
		return -1;
	all = *old;
	for (size_t i = 0; i < ARRAY_SIZE(all.data); i++)
		all.data[i].effective = all.data[i].permitted;
	return set(&all);
}

int lay_down_capabilities(struct capabilities *old)
{
	return set(old);
}

int lower_capabilities(void)
{
	struct capabilities few;

	if (get(&few) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(few.data); i++)
		few.data[i].effective &= kept(i);
	return set(&few);
}

int give_up_capabilities(void)
{
	struct capabilities few;

	if (get(&few) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(few.data); i++) {
		few.data[i].permitted &= kept(i);
		few.data[i].effective &= few.data[i].permitted;
		few.data[i].inheritable &= few.data[i].permitted;
	}
	return set(&few);
}

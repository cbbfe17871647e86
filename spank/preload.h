/* The library that slurmd loads with LD_PRELOAD: images/worker/preload.c. */
#ifndef SLURMSTACK_PRELOAD_H
#define SLURMSTACK_PRELOAD_H

#include <dlfcn.h>
#include <stdbool.h>

/* Returns the library's flag, to set if this process opens a file for a user; or NULL. */
static inline bool *flag_of_preload(void)
{
	return dlsym(RTLD_DEFAULT, "slurmstack_opens_for_user");
}

#endif

/* The library that slurmd loads with LD_PRELOAD: images/worker/preload.c. */
#ifndef SLURMSTACK_PRELOAD_H
#define SLURMSTACK_PRELOAD_H

#include <dlfcn.h>
#include <stdbool.h>

/*
 * Returns the flag slurmstack_opens_for_user of the library, or NULL if the library is not loaded.
 * Set this flag in a process that opens a file for a user.
 */
static inline bool *flag_of_preload(void)
{
	return dlsym(RTLD_DEFAULT, "slurmstack_opens_for_user");
}

#endif

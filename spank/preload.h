/* The library in the LD_PRELOAD of slurmd: images/worker/preload.c. */
#ifndef SLURMSTACK_PRELOAD_H
#define SLURMSTACK_PRELOAD_H

#include <dlfcn.h>
#include <stdbool.h>

/* Its flag that this process opens a file for a user; NULL if the library is not loaded. */
static inline bool *flag_of_preload(void)
{
	return dlsym(RTLD_DEFAULT, "slurmstack_opens_for_user");
}

#endif

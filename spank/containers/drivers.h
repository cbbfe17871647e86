/* Decides which drivers and devices of the node a container uses. */
#ifndef SLURMSTACK_CONTAINER_DRIVERS_H
#define SLURMSTACK_CONTAINER_DRIVERS_H

#include <stdbool.h>

/* Path of the GPU driver's directories `lib` and `bin`. Tests use another path. */
#ifndef DRIVERS
#define DRIVERS "/usr/lib/slurmstack/drivers"
#endif

/* Call the following functions in the container, after its variables have been set. */

/*
 * Whether the node has libraries or programs of a GPU driver, and neither the image nor the user
 * refuses them.
 */
bool uses_libraries_of_driver(void);
bool uses_programs_of_driver(void);

/* Whether the image or the user refuses InfiniBand devices. */
bool refuses_infiniband(void);

#endif

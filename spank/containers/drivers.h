/* The GPU driver of the node, which jobs and containers see in the same directory. */
#ifndef SLURMSTACK_CONTAINER_DRIVERS_H
#define SLURMSTACK_CONTAINER_DRIVERS_H

#include <stdbool.h>

/* Path of the driver's directories `lib` and `bin`. Tests use another path. */
#ifndef DRIVERS
#define DRIVERS "/usr/lib/slurmstack/drivers"
#endif

/*
 * Whether the node has libraries or programs of a driver, and neither image nor user refuse them.
 * Call these functions in the container, with its variables.
 */
bool uses_libraries_of_driver(void);
bool uses_programs_of_driver(void);

#endif

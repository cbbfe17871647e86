#include "environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool is_named(const char *names, const char *name, size_t length)
{
	while (names != NULL && names[0] != '\0') {
		size_t one = strcspn(names, ",");

		if (one == length && strncmp(names, name, length) == 0)
			return true;
		names += one + (names[one] == ',');
	}
	return false;
}

/* Whether Slurm or PMIx has set the variable of this task, and programs in the container need it. */
static bool belongs_to_task(const char *variable, size_t length)
{
	static const char *const prefixes[] = {"SLURM_", "SLURMD_", "PMIX_", "PMI_"};
	char name[256];

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		if (strncmp(variable, prefixes[i], strlen(prefixes[i])) != 0)
			continue;
		(void)snprintf(name, sizeof(name), "%.*s", (int)length, variable);
		return length >= sizeof(name) || getenv(name) != NULL;
	}
	return false;
}

void set_variables(const char *list, size_t length, const char *kept)
{
	for (const char *end = list + length; list < end; list += strlen(list) + 1) {
		size_t name = strcspn(list, "=");
		char *copy;

		if (list[name] != '=' || is_named(kept, list, name) || belongs_to_task(list, name))
			continue;
		/* putenv(3) keeps the pointer, so do not free the copy. */
		copy = strdup(list);
		if (copy != NULL)
			(void)putenv(copy);
	}
}

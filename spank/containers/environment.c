#include "environment.h"

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

void set_variables(const char *list, size_t length, const char *kept)
{
	for (const char *end = list + length; list < end; list += strlen(list) + 1) {
		size_t name = strcspn(list, "=");
		char *copy;

		if (list[name] != '=' || is_named(kept, list, name))
			continue;
		/* putenv(3) keeps the pointer. */
		copy = strdup(list);
		if (copy != NULL)
			(void)putenv(copy);
	}
}

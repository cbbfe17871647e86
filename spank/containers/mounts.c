#include "mounts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

static char wrong[1024];

__attribute__((format(printf, 1, 2))) static const char *say_wrong(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(wrong, sizeof(wrong), format, args);
	va_end(args);
	return wrong;
}

/* ---- flags ---- */

static const struct {
	const char *name;
	uint64_t attribute;
} attributes[] = {
	{"ro", MOUNT_ATTR_RDONLY},   {"nosuid", MOUNT_ATTR_NOSUID}, {"nodev", MOUNT_ATTR_NODEV},
	{"noexec", MOUNT_ATTR_NOEXEC}, {"noatime", MOUNT_ATTR_NOATIME},
	{"nodiratime", MOUNT_ATTR_NODIRATIME},
};

/* Ignored flags: mounts never propagate out of a container, and targets are always created. */
static const char *const without_effect[] = {
	"rw", "rbind", "relatime", "private", "rprivate", "slave", "rslave", "shared", "rshared",
	"silent", "x-create=auto", "x-create=dir", "x-create=file", "x-detach",
};

static bool set_attribute(struct wanted_mount *wanted, const char *flag)
{
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (strcmp(flag, attributes[i].name) == 0) {
			wanted->attributes |= attributes[i].attribute;
			return true;
		}
	for (size_t i = 0; i < sizeof(without_effect) / sizeof(without_effect[0]); i++)
		if (strcmp(flag, without_effect[i]) == 0)
			return true;
	return false;
}

static bool set_parameter(char **field, const char *flag, const char *name)
{
	size_t length = strlen(name);

	if (strncmp(flag, name, length) != 0 || flag[length] != '=')
		return false;
	free(*field);
	*field = strdup(flag + length + 1);
	return *field != NULL;
}

static bool set_flag(struct wanted_mount *wanted, const char *flag)
{
	if (strcmp(flag, "bind") == 0)
		wanted->recursive = false;
	else if (strcmp(flag, "nofail") == 0)
		wanted->optional = true;
	else if (wanted->kind == TMPFS && (set_parameter(&wanted->size, flag, "size") ||
					   set_parameter(&wanted->mode, flag, "mode")))
		return true;
	else
		return set_attribute(wanted, flag);
	return true;
}

static const char *set_flags(struct wanted_mount *wanted, char *flags)
{
	char *flag;

	while ((flag = strsep(&flags, "+")) != NULL)
		if (flag[0] != '\0' && !set_flag(wanted, flag))
			return say_wrong("--container-mounts: flag %s of %s is unknown: expected "
					 "ro, bind, rbind, nosuid, nodev, noexec or nofail, for "
					 "tmpfs also size= or mode=", flag, wanted->target);
	return NULL;
}

/* ---- mounts ---- */

static bool is_path(const char *text)
{
	return text[0] == '/' || text[0] == '.';
}

static const char *parse_mount(struct wanted_mounts *wanted, char *text)
{
	struct wanted_mount *mount = &wanted->mounts[wanted->n];
	char *source = strsep(&text, ":"), *target = strsep(&text, ":"), *flags = text;

	if (wanted->n == MAX_MOUNTS)
		return say_wrong("--container-mounts: more than %d mounts: remove some", MAX_MOUNTS);
	if (target == NULL)
		target = source;
	*mount = (struct wanted_mount){.kind = BIND, .recursive = true};
	if (strcmp(source, "tmpfs") == 0)
		mount->kind = TMPFS;
	else if (strcmp(source, "umount") == 0)
		mount->kind = UMOUNT;
	else if (!is_path(source))
		return say_wrong("--container-mounts: source '%s': expected a path that begins "
				 "with / or ., or the word tmpfs or umount", source);
	if (!is_path(target))
		return say_wrong("--container-mounts: target '%s' of %s: expected a path that "
				 "begins with / or .", target, source);
	mount->source = strdup(source);
	mount->target = strdup(target);
	wanted->n++;
	if (mount->source == NULL || mount->target == NULL)
		return say_wrong("--container-mounts: out of memory");
	return flags == NULL ? NULL : set_flags(mount, flags);
}

const char *parse_mounts(struct wanted_mounts *wanted, const char *text)
{
	const char *reason = NULL;
	char *copy = strdup(text), *rest = copy, *one;

	if (copy == NULL)
		return say_wrong("--container-mounts: out of memory");
	while (reason == NULL && (one = strsep(&rest, ",")) != NULL)
		reason = parse_mount(wanted, one);
	free(copy);
	return reason;
}

void free_mounts(struct wanted_mounts *wanted)
{
	for (size_t i = 0; i < wanted->n; i++) {
		free(wanted->mounts[i].source);
		free(wanted->mounts[i].target);
		free(wanted->mounts[i].size);
		free(wanted->mounts[i].mode);
	}
	wanted->n = 0;
}

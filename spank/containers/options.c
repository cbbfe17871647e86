#include "options.h"

#include "mounts.h"
#include "report.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#pragma GCC visibility pop

/* Maximum length of a container's name, which is part of a directory's name. */
#define MAX_NAME 128

struct container_options given = {.switches = {-1, -1, -1, -1, -1}};

/* ---- values ---- */

static int check_mounts(const char *value)
{
	struct wanted_mounts *wanted = calloc(1, sizeof(*wanted));
	const char *reason = wanted == NULL ? "no memory" : parse_mounts(wanted, value);
	int rc = reason == NULL ? ACCEPTED : refuse("%s", reason);

	if (wanted != NULL)
		free_mounts(wanted);
	free(wanted);
	return rc;
}

static int check_workdir(const char *value)
{
	return value[0] == '/' ? ACCEPTED
			       : refuse("--container-workdir=%s: expected an absolute path", value);
}

static int check_name(const char *value)
{
	static const char *const reuses[] = {"auto", "create", "exec", "no_exec"};
	size_t length = strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-");

	if (length == 0 || length > MAX_NAME || value[0] == '.' ||
	    (value[length] != '\0' && value[length] != ':'))
		return refuse("--container-name=%s: expected at most %d letters, digits, dots, "
			      "dashes and underscores", value, MAX_NAME);
	if (value[length] == '\0')
		return ACCEPTED;
	for (size_t i = 0; i < ARRAY_SIZE(reuses); i++)
		if (strcmp(value + length + 1, reuses[i]) == 0)
			return ACCEPTED;
	return refuse("--container-name=%s: expected auto, create, exec or no_exec after the colon",
		      value);
}

static int check_save(const char *value)
{
	return value[strlen(value) - 1] != '/'
		       ? ACCEPTED
		       : refuse("--container-save=%s: expected the path of a file, without / at "
				"the end", value);
}

/* Checks words separated by commas. `allowed` ends with NULL; NULL itself allows all words. */
static int check_words(const char *option, const char *value, const char *const *allowed)
{
	for (const char *word = value;;) {
		size_t length = strcspn(word, ","), i = 0;

		if (length == 0)
			return refuse("%s=%s: expected words separated by commas: one is empty",
				      option, value);
		for (; allowed != NULL && allowed[i] != NULL; i++)
			if (strlen(allowed[i]) == length && strncmp(allowed[i], word, length) == 0)
				break;
		if (allowed != NULL && allowed[i] == NULL)
			return refuse("%s=%s: unknown namespace '%.*s': expected net, ipc or uts",
				      option, value, (int)length, word);
		if (word[length] == '\0')
			return ACCEPTED;
		word += length + 1;
	}
}

static int check_env(const char *value)
{
	return check_words("--container-env", value, NULL);
}

static int check_unshare(const char *value)
{
	static const char *const kinds[] = {"net", "ipc", "uts", NULL};

	return check_words("--container-unshare", value, kinds);
}

/* ---- options ---- */

static const struct {
	const char *name, *argument, *usage, *variable;
	/* NULL for IMAGE, whose value the importer checks. */
	int (*check)(const char *value);
} texts[N_TEXT_OPTIONS] = {
	[IMAGE] = {"container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH",
		   "image in which the step runs: from a registry, a squashfs file, an OCI "
		   "layout or archive, or a directory", "IMAGE", NULL},
	[MOUNTS] = {"container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]",
		    "paths of the job to mount in the container; join flags with +, such as "
		    "ro+nosuid", "MOUNTS", check_mounts},
	[WORKDIR] = {"container-workdir", "PATH", "working directory in the container", "WORKDIR",
		     check_workdir},
	[NAME] = {"container-name", "NAME[:auto|create|exec|no_exec]",
		  "name by which later steps of the job find the container", "NAME", check_name},
	[SAVE] = {"container-save", "PATH", "squashfs file for the container's files after the step",
		  "SAVE", check_save},
	[ENV] = {"container-env", "NAME[,NAME...]",
		 "variables of the job that override those of the image", "ENV", check_env},
	[UNSHARE] = {"container-unshare", "NS[,NS...]",
		     "private namespaces of the container: net, ipc, uts", "UNSHARE", check_unshare},
};

static const struct {
	const char *name[2], *usage[2], *variable[2];
} switches[N_SWITCH_OPTIONS] = {
	[MOUNT_HOME] = {{"no-container-mount-home", "container-mount-home"},
			{"do not mount the home directory in the container",
			 "mount the home directory in the container (default)"},
			{NULL, "MOUNT_HOME"}},
	[REMAP_ROOT] = {{"no-container-remap-root", "container-remap-root"},
			{"keep the user's uid in the container (default)",
			 "be root in the container, without root's rights outside it"},
			{NULL, "REMAP_ROOT"}},
	[ENTRYPOINT] = {{"no-container-entrypoint", "container-entrypoint"},
			{"do not run the image's entrypoint (default)",
			 "run the image's entrypoint before the step"},
			{NULL, "ENTRYPOINT"}},
	[ENTRYPOINT_LOG] = {{NULL, "container-entrypoint-log"},
			    {NULL, "show what the entrypoint prints"},
			    {NULL, "ENTRYPOINT_LOG"}},
	[WRITABLE] = {{"container-readonly", "container-writable"},
		      {"make the files of the container read-only",
		       "make the files of the container writable (default)"},
		      {"READONLY", "WRITABLE"}},
};

static int set_text(enum text_option option, const char *value)
{
	char **field = &given.texts[option];

	if (value == NULL || value[0] == '\0')
		return refuse("--%s: expected a value", texts[option].name);
	/* Slurm passes an option twice if the option has two sources, such as a variable. */
	if (*field != NULL && strcmp(*field, value) == 0)
		return ACCEPTED;
	if (*field != NULL)
		return refuse("--%s is set twice: remove one", texts[option].name);
	if (texts[option].check != NULL && texts[option].check(value) < 0)
		return REFUSED;
	*field = strdup(value);
	return *field == NULL ? refuse("no memory") : ACCEPTED;
}

static int set_switch(enum switch_option option, int value)
{
	if (given.switches[option] == !value)
		return refuse("--%s and --%s are both set: remove one", switches[option].name[0],
			      switches[option].name[1]);
	given.switches[option] = value;
	return ACCEPTED;
}

/* Slurm passes the number `val` of the option. */
static int hear_text(int option, const char *value, int remote)
{
	(void)remote;
	return set_text((enum text_option)option, value);
}

static int hear_switch(int number, const char *value, int remote)
{
	(void)value;
	(void)remote;
	return set_switch((enum switch_option)(number / 2), number % 2);
}

static int register_one(spank_t spank, const char *name, const char *argument, const char *usage,
			int number, spank_opt_cb_f hear)
{
	struct spank_option option = {
		.name = (char *)name,
		.arginfo = (char *)argument,
		.usage = (char *)usage,
		.has_arg = argument != NULL,
		.val = number,
		.cb = hear,
	};

	if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
		return refuse("cannot register --%s with Slurm", name);
	return ACCEPTED;
}

int register_options(spank_t spank)
{
	for (int i = 0; i < N_TEXT_OPTIONS; i++)
		if (register_one(spank, texts[i].name, texts[i].argument, texts[i].usage, i,
				 hear_text) < 0)
			return REFUSED;
	for (int i = 0; i < 2 * N_SWITCH_OPTIONS; i++)
		if (switches[i / 2].name[i % 2] != NULL &&
		    register_one(spank, switches[i / 2].name[i % 2], NULL,
				 switches[i / 2].usage[i % 2], i, hear_switch) < 0)
			return REFUSED;
	return ACCEPTED;
}

/* ---- variables ---- */

/* Returns the value of PYXIS_CONTAINER_<name> in the job, which the caller frees; or NULL. */
static char *variable(spank_t spank, const char *name)
{
	char full[64], value[8192];

	(void)snprintf(full, sizeof(full), "PYXIS_CONTAINER_%s", name);
	if (spank_remote(spank) != 1)
		return getenv(full) == NULL ? NULL : strdup(getenv(full));
	return spank_getenv(spank, full, value, sizeof(value)) == ESPANK_SUCCESS ? strdup(value)
										 : NULL;
}

/* Returns 1 or 0; -1 for an unknown word. */
static int read_switch(const char *word)
{
	static const char *const words[2][4] = {{"0", "n", "no", "false"},
						{"1", "y", "yes", "true"}};

	for (int value = 0; value < 2; value++)
		for (size_t i = 0; i < ARRAY_SIZE(words[value]); i++)
			if (strcasecmp(word, words[value][i]) == 0)
				return value;
	return -1;
}

/* Sets a switch from a variable, if no option has set it. `on` is the switch's value for "yes". */
static int take_switch(spank_t spank, enum switch_option option, const char *name, int on)
{
	char *word = name == NULL || given.switches[option] >= 0 ? NULL : variable(spank, name);
	int value = word == NULL ? -1 : read_switch(word), rc = ACCEPTED;

	if (word != NULL && value < 0)
		rc = refuse("PYXIS_CONTAINER_%s=%s: expected yes or no", name, word);
	else if (value >= 0)
		given.switches[option] = value ? on : !on;
	free(word);
	return rc;
}

int take_environment(spank_t spank)
{
	for (int i = 0; i < N_TEXT_OPTIONS; i++) {
		char *value = given.texts[i] != NULL ? NULL : variable(spank, texts[i].variable);
		int rc = value == NULL ? ACCEPTED : set_text((enum text_option)i, value);

		free(value);
		if (rc < 0)
			return REFUSED;
	}
	for (int i = 0; i < 2 * N_SWITCH_OPTIONS; i++)
		if (take_switch(spank, (enum switch_option)(i / 2), switches[i / 2].variable[i % 2],
				i % 2) < 0)
			return REFUSED;
	return ACCEPTED;
}

/* ---- all options ---- */

bool wants_container(void)
{
	return given.texts[IMAGE] != NULL || given.texts[NAME] != NULL;
}

void warn_of_ignored(void)
{
	for (int i = 0; i < N_TEXT_OPTIONS; i++)
		if (given.texts[i] != NULL)
			slurm_error("container: --%s has no effect without --container-image or "
				    "--container-name", texts[i].name);
	for (int i = 0; i < N_SWITCH_OPTIONS; i++)
		if (given.switches[i] >= 0)
			slurm_error("container: --%s has no effect without --container-image or "
				    "--container-name", switches[i].name[given.switches[i]]);
}

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
/* Maximum length of a variable in bytes. */
#define MAX_VALUE 8191
/* Prefix of the variables in which Slurm passes options of sbatch and salloc on to srun. */
#define INHERITED_PREFIX "SLURM_SPANK__SLURM_SPANK_OPTION_container_"
#define PYXIS_PREFIX "PYXIS_CONTAINER_"
/*
 * A switch has an option and an opposite option. This variable contains the client's choice for
 * each switch.
 */
#define SWITCHES "SLURM_SPANK_CONTAINER_SWITCHES"

struct container_options given = {.switches = {[0 ... N_SWITCH_OPTIONS - 1] = -1}};

/* ---- values ---- */

static int check_mounts(const char *value)
{
	struct wanted_mounts *wanted = calloc(1, sizeof(*wanted));
	const char *reason = wanted == NULL ? "out of memory" : parse_mounts(wanted, value);
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
		return refuse("--container-name=%s: expected 1 to %d letters, digits, dots, "
			      "dashes and underscores; the first one is not a dot", value, MAX_NAME);
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

/*
 * Checks words separated by commas. `allowed` lists the allowed words, and ends with NULL. If
 * `allowed` itself is NULL, all words are allowed.
 */
static int check_words(const char *option, const char *value, const char *const *allowed)
{
	for (const char *word = value;;) {
		size_t length = strcspn(word, ","), i = 0;

		if (length == 0)
			return refuse("%s=%s: one of the words is empty: expected words separated by "
				      "commas", option, value);
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

/* Formats the name of the variable in which srun inherits an option. */
static void format_inherited(const char *option, char *name, size_t size)
{
	(void)snprintf(name, size, INHERITED_PREFIX "%s", option);
	for (char *c = name; *c != '\0'; c++)
		if (*c == '-')
			*c = '_';
}

/*
 * Returns the source of an option's value. For an inherited option, Slurm passes a pointer to the
 * value in the environment itself, not to a copy.
 */
static enum source source_of(const char *option, const char *value, int remote)
{
	char name[128];

	format_inherited(option, name, sizeof(name));
	return remote == 0 && value != NULL && value == getenv(name) ? INHERITED : COMMAND_LINE;
}

/*
 * Replaces the inherited value, because srun reads its environment again for each component of a
 * heterogeneous step.
 */
static void override_inherited(const char *option, const char *value)
{
	char name[128];

	format_inherited(option, name, sizeof(name));
	if (getenv(name) != NULL && spank_context() == S_CTX_LOCAL)
		(void)setenv(name, value, 1);
}

/*
 * Whether both values of an option come from srun's command line. For sbatch, this cannot be
 * determined: sbatch passes #SBATCH lines and then its command line in the same way, and the last
 * value wins.
 */
static bool is_second(enum source first, enum source second)
{
	return spank_context() == S_CTX_LOCAL && first == COMMAND_LINE && second == COMMAND_LINE;
}

static int set_text(enum text_option option, const char *value, enum source source)
{
	char **field = &given.texts[option], *copy;

	if (value == NULL || value[0] == '\0')
		return refuse("--%s: expected a value", texts[option].name);
	if (*field != NULL && strcmp(*field, value) != 0 &&
	    is_second(given.text_sources[option], source))
		return refuse("--%s is set twice: remove one", texts[option].name);
	/* In a heterogeneous step, srun passes the value of its command line again as inherited. */
	if (*field != NULL && strcmp(*field, value) == 0 && source < given.text_sources[option])
		return ACCEPTED;
	if (texts[option].check != NULL && texts[option].check(value) < 0)
		return REFUSED;
	copy = strdup(value);
	if (copy == NULL)
		return refuse("out of memory");
	free(*field);
	*field = copy;
	given.text_sources[option] = source;
	if (source == COMMAND_LINE)
		override_inherited(texts[option].name, value);
	return ACCEPTED;
}

static int set_switch(enum switch_option option, int value, enum source source)
{
	int *field = &given.switches[option];
	enum source *from = &given.switch_sources[option];

	if (*field == !value && is_second(*from, source))
		return refuse("--%s and --%s are both set: remove one", switches[option].name[0],
			      switches[option].name[1]);
	given.both[option] |= *field == !value;
	/* In a heterogeneous step, an inherited value can follow the value of the command line. */
	if (spank_context() == S_CTX_LOCAL && source < *from)
		return ACCEPTED;
	*field = value;
	*from = source;
	return ACCEPTED;
}

/* The callbacks of the options. Slurm passes the number `val` of the option. */
static int hear_text(int option, const char *value, int remote)
{
	return set_text((enum text_option)option, value,
			source_of(texts[option].name, value, remote));
}

static int hear_switch(int number, const char *value, int remote)
{
	return set_switch((enum switch_option)(number / 2), number % 2,
			  source_of(switches[number / 2].name[number % 2], value, remote));
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

/*
 * Sets *value to the value of a variable of the job, which the caller frees; or to NULL. Refuses
 * values with more than MAX_VALUE bytes, also in the client, where Slurm itself has no limit.
 */
static int read_variable(spank_t spank, const char *name, char **value)
{
	char text[MAX_VALUE + 1];
	const char *found = text;
	spank_err_t rc = ESPANK_SUCCESS;

	*value = NULL;
	if (spank_remote(spank) == 1)
		rc = spank_getenv(spank, name, text, sizeof(text));
	else
		found = getenv(name);
	if (rc == ESPANK_NOSPACE || (rc == ESPANK_SUCCESS && found != NULL &&
				     strlen(found) > MAX_VALUE))
		return refuse("%s: the value has more than %d bytes: shorten it", name, MAX_VALUE);
	if (rc != ESPANK_SUCCESS || found == NULL)
		return ACCEPTED;
	*value = strdup(found);
	return *value == NULL ? refuse("out of memory") : ACCEPTED;
}

/* Reads PYXIS_CONTAINER_<name> as read_variable does. */
static int read_pyxis_variable(spank_t spank, const char *name, char **value)
{
	char full[64];

	(void)snprintf(full, sizeof(full), PYXIS_PREFIX "%s", name);
	return read_variable(spank, full, value);
}

/* Returns 1 for yes, 0 for no, and -1 for an unknown word. */
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
	char *word = NULL;
	int value, rc = ACCEPTED;

	if (name == NULL || given.switches[option] >= 0)
		return ACCEPTED;
	if (read_pyxis_variable(spank, name, &word) < 0)
		return REFUSED;
	value = word == NULL ? -1 : read_switch(word);
	if (word != NULL && value < 0)
		rc = refuse(PYXIS_PREFIX "%s=%s: expected yes or no", name, word);
	if (value >= 0) {
		given.switches[option] = value ? on : !on;
		given.switch_sources[option] = VARIABLE;
		given.switch_variables[option] = name;
	}
	free(word);
	return rc;
}

static int take_text(spank_t spank, enum text_option option)
{
	char *value = NULL;
	int rc = ACCEPTED;

	if (given.texts[option] != NULL)
		return ACCEPTED;
	if (read_pyxis_variable(spank, texts[option].variable, &value) < 0)
		return REFUSED;
	if (value != NULL)
		rc = set_text(option, value, VARIABLE);
	free(value);
	return rc;
}

/* ---- options and their opposites ---- */

/*
 * Passes the value of each switch in a variable to the nodes and the steps of the job. This is
 * necessary because Slurm passes an option and its opposite to them, without their order.
 */
static int pass_switches(void)
{
	char values[N_SWITCH_OPTIONS + 1] = "";

	for (int i = 0; i < N_SWITCH_OPTIONS; i++)
		values[i] = given.switches[i] < 0 ? '-' : (char)('0' + given.switches[i]);
	return setenv(SWITCHES, values, 1) == 0 ? ACCEPTED : refuse("out of memory");
}

/* Decides between an option and its opposite if Slurm passed both in an unknown order. */
static int settle_switches(spank_t spank)
{
	char *values;
	size_t length;
	bool remote = spank_remote(spank) == 1, any = false;
	int rc = read_variable(spank, SWITCHES, &values);

	length = values == NULL ? 0 : strlen(values);
	for (size_t i = 0; i < N_SWITCH_OPTIONS && rc == ACCEPTED; i++) {
		if (!given.both[i])
			continue;
		any = true;
		if (!remote && given.switch_sources[i] != INHERITED)
			continue;
		if (i < length && (values[i] == '0' || values[i] == '1'))
			given.switches[i] = values[i] - '0';
		else
			rc = refuse("--%s and --%s are both set: remove one",
				    switches[i].name[0], switches[i].name[1]);
	}
	free(values);
	return rc == ACCEPTED && any && !remote ? pass_switches() : rc;
}

int take_environment(spank_t spank)
{
	if (settle_switches(spank) < 0)
		return REFUSED;
	for (int i = 0; i < N_TEXT_OPTIONS; i++)
		if (take_text(spank, (enum text_option)i) < 0)
			return REFUSED;
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

static void warn_of(const char *prefix, const char *name)
{
	slurm_error("container: %s%s has no effect without --container-image or --container-name",
		    prefix, name);
}

void warn_of_ignored(void)
{
	for (int i = 0; i < N_TEXT_OPTIONS; i++)
		if (given.texts[i] != NULL && given.text_sources[i] == VARIABLE)
			warn_of(PYXIS_PREFIX, texts[i].variable);
		else if (given.texts[i] != NULL)
			warn_of("--", texts[i].name);
	for (int i = 0; i < N_SWITCH_OPTIONS; i++)
		if (given.switch_sources[i] == VARIABLE)
			warn_of(PYXIS_PREFIX, given.switch_variables[i]);
		else if (given.switches[i] >= 0)
			warn_of("--", switches[i].name[given.switches[i]]);
}

/* Tests of the options for containers. Slurm is a fake that passes options as Slurm 24.11 does. */
#include "tests/checks.h"

#include "containers/mounts.c"
#include "containers/options.c"
#include "containers/plugin.c"
#include "containers/report.c"

#define MAX_OPTIONS 32
#define INHERITED_IMAGE INHERITED_PREFIX "container_image"

/* ---- the fake Slurm ---- */

static struct {
	spank_context_t context;
	struct spank_option options[MAX_OPTIONS];
	size_t n_options;
	char errors[4096];
	char *prepended[2 * MAX_ARGUMENTS];
	int n_prepended;
} slurm;

void slurm_error(const char *format, ...)
{
	size_t length = strlen(slurm.errors);
	va_list args;

	va_start(args, format);
	(void)vsnprintf(slurm.errors + length, sizeof(slurm.errors) - length, format, args);
	va_end(args);
	(void)strncat(slurm.errors, "\n", sizeof(slurm.errors) - strlen(slurm.errors) - 1);
}

spank_context_t spank_context(void)
{
	return slurm.context;
}

int spank_remote(spank_t spank)
{
	(void)spank;
	return slurm.context == S_CTX_REMOTE;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	(void)spank;
	if (slurm.n_options == MAX_OPTIONS)
		abort();
	slurm.options[slurm.n_options++] = *option;
	return ESPANK_SUCCESS;
}

/* The variables of the step are those of this process. */
spank_err_t spank_getenv(spank_t spank, const char *name, char *value, int size)
{
	(void)spank;
	if (getenv(name) == NULL)
		return ESPANK_ENV_NOEXIST;
	if (snprintf(value, (size_t)size, "%s", getenv(name)) >= size)
		return ESPANK_NOSPACE;
	return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	va_list args;

	(void)spank;
	va_start(args, item);
	*va_arg(args, uint32_t *) = item == S_JOB_LOCAL_TASK_COUNT ? 1 : 0;
	va_end(args);
	return ESPANK_SUCCESS;
}

static void drop_prepended(void)
{
	for (; slurm.n_prepended > 0; slurm.n_prepended--)
		free(slurm.prepended[slurm.n_prepended - 1]);
}

spank_err_t spank_prepend_task_argv(spank_t spank, int argc, const char *argv[])
{
	(void)spank;
	drop_prepended();
	for (; slurm.n_prepended < argc; slurm.n_prepended++)
		slurm.prepended[slurm.n_prepended] = strdup(argv[slurm.n_prepended]);
	return ESPANK_SUCCESS;
}

const char *spank_strerror(spank_err_t error)
{
	(void)error;
	return "an error";
}

/* ---- a client or a step ---- */

/* Values of the switches at the time when Slurm loads the plugin. */
static int initial[N_SWITCH_OPTIONS];

static void forget(void)
{
	for (int i = 0; i < N_TEXT_OPTIONS; i++) {
		free(given.texts[i]);
		given.texts[i] = NULL;
		given.text_sources[i] = UNSET;
	}
	for (int i = 0; i < N_SWITCH_OPTIONS; i++) {
		given.switches[i] = -1;
		given.switch_sources[i] = UNSET;
		given.switch_variables[i] = NULL;
		given.both[i] = false;
	}
}

/* Starts a program of Slurm, which loads the plugin. */
static void begin(spank_context_t context)
{
	char *config_words[] = {"program=/start", "importer=/import", "cache=/cache"};

	forget();
	slurm.context = context;
	slurm.n_options = 0;
	slurm.errors[0] = '\0';
	CHECK(slurm_spank_init(NULL, ARRAY_SIZE(config_words), config_words) == 0);
}

static void reset(void)
{
	drop_prepended();
	(void)clearenv();
	begin(S_CTX_LOCAL);
}

static int hear(const char *option, const char *value)
{
	for (size_t i = 0; i < slurm.n_options; i++)
		if (strcmp(slurm.options[i].name, option) == 0)
			return slurm.options[i].cb(slurm.options[i].val, value,
						   slurm.context == S_CTX_REMOTE);
	abort();
}

/* Calls the callbacks of all options in the environment, as srun does before its command line. */
static void inherit(void)
{
	for (size_t i = 0; i < slurm.n_options; i++) {
		char name[128];

		format_inherited(slurm.options[i].name, name, sizeof(name));
		if (getenv(name) != NULL)
			CHECK(slurm.options[i].cb(slurm.options[i].val, getenv(name), 0) == 0);
	}
}

/* Starts a srun in a batch script with this option. */
static void begin_in_script(const char *option, const char *value)
{
	char name[128];

	format_inherited(option, name, sizeof(name));
	(void)setenv(name, value, 1);
	begin(S_CTX_LOCAL);
	inherit();
}

static bool failed_with(const char *words)
{
	return strstr(slurm.errors, words) != NULL &&
	       strchr(slurm.errors, '\n') == strrchr(slurm.errors, '\n');
}

static int finish(void)
{
	return slurm_spank_init_post_opt(NULL, 0, NULL);
}

/* ---- sources of options ---- */

static void no_switch_is_set_at_first(void)
{
	for (int i = 0; i < N_SWITCH_OPTIONS; i++)
		CHECK(initial[i] == -1);
}

static void srun_overrides_the_image_of_its_batch_script(void)
{
	begin_in_script("container-image", "first");

	CHECK(hear("container-image", "second") == 0);
	CHECK(finish() == 0);
	CHECK(strcmp(given.texts[IMAGE], "second") == 0);
	CHECK(slurm.errors[0] == '\0');
}

static void srun_keeps_the_image_of_its_batch_script(void)
{
	begin_in_script("container-image", "first");

	CHECK(finish() == 0);
	CHECK(strcmp(given.texts[IMAGE], "first") == 0);
}

static void srun_refuses_two_images_on_its_command_line(void)
{
	begin_in_script("container-image", "first");
	CHECK(hear("container-image", "second") == 0);

	CHECK(hear("container-image", "third") < 0);
	CHECK(failed_with("--container-image is set twice: remove one"));
}

static void srun_accepts_the_same_image_twice(void)
{
	CHECK(hear("container-image", "first") == 0);
	CHECK(hear("container-image", "first") == 0);
}

static void each_component_of_a_heterogeneous_step_keeps_the_image_of_the_command_line(void)
{
	begin_in_script("container-image", "first");
	CHECK(hear("container-image", "second") == 0);

	inherit();

	CHECK(strcmp(given.texts[IMAGE], "second") == 0);
	CHECK(hear("container-image", "third") < 0);
}

static void sbatch_prefers_its_command_line_to_the_script(void)
{
	begin(S_CTX_ALLOCATOR);

	CHECK(hear("container-image", "script") == 0);
	CHECK(hear("container-readonly", "") == 0);
	CHECK(hear("container-image", "line") == 0);
	CHECK(hear("container-writable", "") == 0);
	CHECK(finish() == 0);
	CHECK(strcmp(given.texts[IMAGE], "line") == 0);
	CHECK(given.switches[WRITABLE] == 1);
}

static void srun_refuses_an_option_and_its_opposite_on_its_command_line(void)
{
	CHECK(hear("container-writable", "") == 0);

	CHECK(hear("container-readonly", "") < 0);
	CHECK(failed_with("--container-readonly and --container-writable are both set: remove one"));
}

/* Slurm passes both options to the node in the order in which the plugin registered them. */
static void node_hears(const char *const options[], size_t n)
{
	begin(S_CTX_REMOTE);
	CHECK(hear("container-image", "first") == 0);
	for (size_t i = 0; i < n; i++)
		CHECK(hear(options[i], "") == 0);
}

static const char *const both[] = {"container-readonly", "container-writable"};

static void node_follows_the_choice_of_srun(void)
{
	begin_in_script("container-writable", "(null)");
	CHECK(hear("container-image", "first") == 0);
	CHECK(hear("container-readonly", NULL) == 0);
	CHECK(finish() == 0);
	CHECK(given.switches[WRITABLE] == 0);

	node_hears(both, ARRAY_SIZE(both));
	CHECK(slurm_spank_task_init(NULL, 0, NULL) == 0);
	CHECK(given.switches[WRITABLE] == 0);
}

static void srun_follows_the_choice_of_sbatch(void)
{
	begin(S_CTX_ALLOCATOR);
	CHECK(hear("container-image", "first") == 0);
	CHECK(hear("container-writable", "") == 0);
	CHECK(hear("container-readonly", "") == 0);
	CHECK(finish() == 0);

	(void)setenv(INHERITED_PREFIX "container_readonly", "(null)", 1);
	begin_in_script("container-writable", "(null)");
	CHECK(finish() == 0);
	CHECK(given.switches[WRITABLE] == 0);
}

static void node_refuses_an_option_and_its_opposite_in_unknown_order(void)
{
	node_hears(both, ARRAY_SIZE(both));

	CHECK(slurm_spank_task_init(NULL, 0, NULL) < 0);
	CHECK(failed_with("are both set: remove one"));
}

static void each_component_of_a_heterogeneous_step_keeps_the_switches_of_the_command_line(void)
{
	begin_in_script("container-readonly", "(null)");
	CHECK(hear("container-writable", "") == 0);

	inherit();

	CHECK(given.switches[WRITABLE] == 1);
	CHECK(finish() == 0);
	CHECK(given.switches[WRITABLE] == 1);
}

/* ---- variables ---- */

static void variable_sets_an_option_that_is_not_given(void)
{
	(void)setenv("PYXIS_CONTAINER_IMAGE", "first", 1);
	(void)setenv("PYXIS_CONTAINER_WORKDIR", "/variable", 1);
	(void)setenv("PYXIS_CONTAINER_READONLY", "yes", 1);
	CHECK(hear("container-workdir", "/option") == 0);

	CHECK(finish() == 0);
	CHECK(strcmp(given.texts[IMAGE], "first") == 0);
	CHECK(strcmp(given.texts[WORKDIR], "/option") == 0);
	CHECK(given.switches[WRITABLE] == 0);
}

/* Sets a variable with this number of bytes, and starts a program of Slurm. */
static void begin_with_long_variable(spank_context_t context, size_t length)
{
	char *value = calloc(1, length + 1);

	if (value == NULL)
		abort();
	memset(value, 'x', length);
	(void)setenv("PYXIS_CONTAINER_IMAGE", value, 1);
	free(value);
	begin(context);
}

static void variable_with_too_many_bytes_is_refused(void)
{
	static const char reason[] =
		"PYXIS_CONTAINER_IMAGE: the value has more than 8191 bytes: shorten it";

	begin_with_long_variable(S_CTX_LOCAL, 8192);
	CHECK(finish() < 0 && failed_with(reason));
	begin_with_long_variable(S_CTX_REMOTE, 8192);
	CHECK(slurm_spank_task_init(NULL, 0, NULL) < 0 && failed_with(reason));
}

static void variable_with_the_maximum_of_bytes_is_accepted(void)
{
	begin_with_long_variable(S_CTX_LOCAL, 8191);
	CHECK(finish() == 0);
	begin_with_long_variable(S_CTX_REMOTE, 8191);
	CHECK(slurm_spank_task_init(NULL, 0, NULL) == 0);
	CHECK(strlen(given.texts[IMAGE]) == 8191);
}

static void warning_names_the_variable_without_effect(void)
{
	(void)setenv("PYXIS_CONTAINER_MOUNTS", "/a:/a", 1);
	(void)setenv("PYXIS_CONTAINER_READONLY", "no", 1);

	CHECK(finish() == 0);
	CHECK(strcmp(slurm.errors,
		     "container: PYXIS_CONTAINER_MOUNTS has no effect without --container-image or "
		     "--container-name\n"
		     "container: PYXIS_CONTAINER_READONLY has no effect without --container-image or "
		     "--container-name\n") == 0);
}

static void warning_names_the_option_without_effect(void)
{
	CHECK(hear("container-mounts", "/a:/a") == 0);
	CHECK(hear("container-readonly", "") == 0);

	CHECK(finish() == 0);
	CHECK(strcmp(slurm.errors,
		     "container: --container-mounts has no effect without --container-image or "
		     "--container-name\n"
		     "container: --container-readonly has no effect without --container-image or "
		     "--container-name\n") == 0);
}

/* ---- arguments ---- */

/* Starts a task with this number of namespaces. */
static int start_with_namespaces(size_t n)
{
	char value[4 * MAX_ARGUMENTS] = "";

	for (size_t i = 0; i < n; i++)
		(void)strcat(value, i == 0 ? "ipc" : ",ipc");
	begin(S_CTX_REMOTE);
	CHECK(hear("container-image", "first") == 0);
	CHECK(hear("container-unshare", value) == 0);
	return slurm_spank_task_init(NULL, 0, NULL);
}

static void task_with_too_many_arguments_is_refused(void)
{
	CHECK(start_with_namespaces(255) < 0);
	CHECK(failed_with("more than 256 arguments for start-container"));
	CHECK(slurm.n_prepended == 0);
}

static void all_arguments_reach_start_container(void)
{
	int n_usual;

	CHECK(start_with_namespaces(1) == 0);
	n_usual = slurm.n_prepended - 1;
	CHECK(start_with_namespaces((size_t)(MAX_ARGUMENTS - n_usual)) == 0);
	CHECK(slurm.n_prepended == MAX_ARGUMENTS);
	CHECK(strcmp(slurm.prepended[0], "/start") == 0);
	CHECK(strcmp(slurm.prepended[MAX_ARGUMENTS - 1], "--") == 0);
}

static const struct test tests[] = {
	TEST(no_switch_is_set_at_first),
	TEST(srun_overrides_the_image_of_its_batch_script),
	TEST(srun_keeps_the_image_of_its_batch_script),
	TEST(srun_refuses_two_images_on_its_command_line),
	TEST(srun_accepts_the_same_image_twice),
	TEST(each_component_of_a_heterogeneous_step_keeps_the_image_of_the_command_line),
	TEST(sbatch_prefers_its_command_line_to_the_script),
	TEST(srun_refuses_an_option_and_its_opposite_on_its_command_line),
	TEST(node_follows_the_choice_of_srun),
	TEST(srun_follows_the_choice_of_sbatch),
	TEST(node_refuses_an_option_and_its_opposite_in_unknown_order),
	TEST(each_component_of_a_heterogeneous_step_keeps_the_switches_of_the_command_line),
	TEST(variable_sets_an_option_that_is_not_given),
	TEST(variable_with_too_many_bytes_is_refused),
	TEST(variable_with_the_maximum_of_bytes_is_accepted),
	TEST(warning_names_the_variable_without_effect),
	TEST(warning_names_the_option_without_effect),
	TEST(task_with_too_many_arguments_is_refused),
	TEST(all_arguments_reach_start_container),
};

int main(void)
{
	int status;

	memcpy(initial, given.switches, sizeof(initial));
	status = run_tests(tests, ARRAY_SIZE(tests), reset, NULL);
	reset();
	forget();
	return status;
}

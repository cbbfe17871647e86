/*
 * Tests of start-container that need no container. They run in a temporary directory, with a shell
 * script as importer. The linker replaces geteuid(2) and setns(2) by the fakes below.
 */
#include "tests/checks.h"

#define main start_main
#include "containers/start.c"
#undef main

#include <ftw.h>
#include <poll.h>
#include <sys/time.h>
#include <time.h>

#define CACHE_PATH "cache"
#define KEY "key"

/* start-container ends soon after it starts, and so does not free all memory. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

/* ---- fakes ---- */

static uid_t user;

uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void)
{
	return user;
}

int __wrap_setns(int fd, int kinds);
int __wrap_setns(int fd, int kinds)
{
	int file_fd = open("entered", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (file_fd < 0 || dprintf(file_fd, "%d", kinds) < 0)
		abort();
	(void)close(file_fd);
	return fd < 0 ? -1 : 0;
}

/* ---- files ---- */

static char place[] = "/tmp/test_start_container.XXXXXX";

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

static void make_directory(const char *path)
{
	if (mkdir(path, 0700) < 0)
		abort();
}

static void write_bytes(const char *path, const char *bytes, size_t length, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);

	if (fd < 0 || write(fd, bytes, length) != (ssize_t)length || fchmod(fd, mode) < 0)
		abort();
	(void)close(fd);
}

static void write_lines(const char *path, const char *text)
{
	write_bytes(path, text, strlen(text), 0600);
}

/* Creates the files of an image in the cache. */
static void add_image(const char *path)
{
	make_directory(path);
	make_directory(format_text("%s/root", path));
	write_lines(format_text("%s/lock", path), "");
	write_bytes(format_text("%s/environment", path), "", 1, 0600);
	write_lines(format_text("%s/directory", path), "/");
}

/*
 * Prepares a cache with a fresh record of "small:1", and with an image that the importer returns.
 */
static void prepare(void)
{
	static const char importer[] = "#!/bin/sh\necho imported\n";
	struct timeval expiry[2] = {{.tv_sec = time(NULL) + 3600}, {.tv_sec = time(NULL) + 3600}};

	user = getuid();
	request.name = "mine";
	request.reuse = AUTO;
	request.image = request.mounts = NULL;
	request.read_only = false;
	request.kinds = 0;
	(void)nftw(place, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	if (mkdir(place, 0700) < 0 || chdir(place) < 0)
		abort();
	make_directory(CACHE_PATH);
	make_directory(CACHE_PATH "/references");
	make_directory(CACHE_PATH "/images");
	add_image(CACHE_PATH "/images/" KEY);
	add_image("imported");
	write_lines(CACHE_PATH "/references/small%3A1", KEY);
	if (utimes(CACHE_PATH "/references/small%3A1", expiry) < 0)
		abort();
	write_bytes("import", importer, sizeof(importer) - 1, 0700);
}

/* ---- images ---- */

static void close_image(const struct image *image)
{
	(void)close(image->fd);
	(void)close(image->root_fd);
	(void)close(image->lock_fd);
}

static bool uses_cached_image(void)
{
	char *path;
	struct image image = find_image(CACHE_PATH, "./import", "small:1", &path);
	bool cached = strcmp(path, CACHE_PATH "/images/" KEY) == 0;

	CHECK(cached || strcmp(path, "imported") == 0);
	close_image(&image);
	free(path);
	return cached;
}

static const char *const parts_of_the_cache[] = {
	CACHE_PATH, CACHE_PATH "/references", CACHE_PATH "/references/small%3A1",
	CACHE_PATH "/images", CACHE_PATH "/images/" KEY,
};

static void recorded_image_starts_without_the_importer(void)
{
	CHECK(uses_cached_image());
}

static void importer_runs_if_other_users_can_change_the_cache(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(parts_of_the_cache); i++) {
		CHECK(chmod(parts_of_the_cache[i], 0720) == 0);
		CHECK(!uses_cached_image());
		CHECK(chmod(parts_of_the_cache[i], 0702) == 0);
		CHECK(!uses_cached_image());
		CHECK(chmod(parts_of_the_cache[i], 0755) == 0);
		CHECK(uses_cached_image());
	}
}

static void importer_runs_if_the_cache_belongs_to_another_user(void)
{
	user = getuid() + 1;
	CHECK(!uses_cached_image());
}

/* Only root can create files of another user. */
static void importer_runs_if_a_part_of_the_cache_belongs_to_another_user(void)
{
	for (size_t i = 0; getuid() == 0 && i < ARRAY_SIZE(parts_of_the_cache); i++) {
		CHECK(chown(parts_of_the_cache[i], 1, (gid_t)-1) == 0);
		CHECK(!uses_cached_image());
		CHECK(chown(parts_of_the_cache[i], 0, (gid_t)-1) == 0);
	}
	CHECK(uses_cached_image());
}

static void user_can_link_the_cache_to_another_place(void)
{
	CHECK(rename(CACHE_PATH, "elsewhere") == 0 && symlink("elsewhere", CACHE_PATH) == 0);
	CHECK(uses_cached_image());
	if (getuid() != 0)
		return;
	CHECK(lchown(CACHE_PATH, 1, (gid_t)-1) == 0);
	CHECK(!uses_cached_image());
}

/* ---- running containers ---- */

/* Returns the directory of a container with this image. */
static int open_container(const char *image)
{
	make_directory("container");
	write_lines("container/image", image);
	write_lines("container/reference", "small:1");
	write_lines("container/kinds", format_text("%d", CLONE_NEWNET));
	request.image = "small:1";
	record_options(AT_FDCWD);
	if (rename("options", "container/options") < 0)
		abort();
	request.image = NULL;
	return open("container", O_RDONLY | O_DIRECTORY);
}

/* Whether the cache can remove the image. */
static bool is_removable(const char *image)
{
	char *path = format_text("%s/lock", image);
	int fd = open(path, O_RDWR);
	bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;

	(void)close(fd);
	free(path);
	return locked;
}

static void end_process(pid_t pid)
{
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};

	if (kill(pid, SIGKILL) < 0 || poll(&end, 1, 10000) != 1)
		abort();
	(void)close(end.fd);
}

static char *read_errors(void)
{
	return read_text(AT_FDCWD, "errors", NULL);
}

/*
 * Begins a step in a child process, as begin_step does, with its errors in a file. Returns the pid
 * of the keeper.
 */
static pid_t begin_in_child(int container_fd)
{
	int answer[2];
	pid_t keeper = 0, pid;

	request.step = "1.1";
	if (pipe2(answer, O_CLOEXEC) < 0)
		abort();
	pid = fork();
	if (pid == 0) {
		(void)dup2(open("errors", O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
		keeper = begin(container_fd);
		_Exit(write(answer[1], &keeper, sizeof(keeper)) < 0);
	}
	(void)close(answer[1]);
	if (read(answer[0], &keeper, sizeof(keeper)) != sizeof(keeper))
		keeper = 0;
	(void)close(answer[0]);
	(void)wait_for(pid);
	return keeper;
}

/* Begins a step while another process keeps the container. */
static pid_t begin_beside_another_step(int container_fd)
{
	int keepers_fd = open_keepers(container_fd), lock_fd = record_keeper(keepers_fd, "1.0");
	pid_t keeper = begin_in_child(container_fd);

	(void)close(lock_fd);
	(void)close(keepers_fd);
	return keeper;
}

static void step_that_joins_a_container_locks_its_image(void)
{
	int container_fd = open_container("imported");
	pid_t keeper = begin_beside_another_step(container_fd);

	CHECK(keeper > 0);
	CHECK(!is_removable("imported"));
	if (keeper > 0)
		end_process(keeper);
	CHECK(is_removable("imported"));
	(void)close(container_fd);
}

static void step_cannot_join_a_container_without_image(void)
{
	int container_fd = open_container("gone");

	CHECK(begin_beside_another_step(container_fd) == 0);
	CHECK(strstr(read_errors(), "cannot lock the container's image") != NULL);
	(void)close(container_fd);
}

static void running_container_is_not_started_again(void)
{
	int container_fd = open_container("imported");
	pid_t keeper;

	request.reuse = NO_EXEC;
	keeper = begin_beside_another_step(container_fd);
	CHECK(keeper == 0);
	if (keeper > 0)
		end_process(keeper);
	CHECK(strcmp(read_errors(), "container: --container-name=mine:no_exec: the container runs "
				    "on this node: omit :no_exec to join it, choose another name, or "
				    "wait for the end of its steps\n") == 0);
	(void)close(container_fd);
}

/* Returns the errors of a step that joins the container. */
static char *errors_of_join(int container_fd)
{
	pid_t keeper = begin_beside_another_step(container_fd);

	CHECK(keeper > 0);
	if (keeper > 0)
		end_process(keeper);
	return read_errors();
}

static void step_that_joins_with_the_same_image_is_silent(void)
{
	int container_fd = open_container("imported");

	CHECK(strcmp(errors_of_join(container_fd), "") == 0);
	request.image = "small:1";
	CHECK(strcmp(errors_of_join(container_fd), "") == 0);
	(void)close(container_fd);
}

static void step_that_joins_enters_the_namespaces_of_the_container(void)
{
	int container_fd = open_container("imported");
	char *kinds = format_text("%d", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET);

	request.kinds = CLONE_NEWIPC | CLONE_NEWUTS;
	CHECK(strcmp(errors_of_join(container_fd),
		     "container: the container mine already runs, so these options have no effect: "
		     "--container-unshare=ipc, --container-unshare=uts\n") == 0);
	CHECK(strcmp(read_text(AT_FDCWD, "entered", NULL), kinds) == 0);
	free(kinds);
	(void)close(container_fd);
}

static void warning_lists_options_that_a_running_container_lacks(void)
{
	int container_fd = open_container("imported");

	request.image = "other:1";
	request.mounts = "/a:/b";
	request.read_only = true;
	CHECK(strcmp(errors_of_join(container_fd),
		     "container: the container mine already runs, so these options have no effect: "
		     "--container-image=other:1, --container-mounts=/a:/b, --container-readonly\n") ==
	      0);
	(void)close(container_fd);
}

static void restarted_container_keeps_its_image(void)
{
	int container_fd = open_container("imported"), errors_fd = dup(STDERR_FILENO);
	struct image image;
	char *path;

	request.image = "other:1";
	(void)dup2(open("errors", O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
	image = image_of(container_fd, &path);
	(void)dup2(errors_fd, STDERR_FILENO);
	CHECK(strcmp(path, "imported") == 0);
	CHECK(strcmp(request.image, "small:1") == 0);
	CHECK(strcmp(read_errors(), "container: --container-image=other:1 has no effect: the "
				    "container mine has the image small:1\n") == 0);
	close_image(&image);
	(void)close(container_fd);
}

/* ---- variables of tasks ---- */

/* Enters a container with these variables in a child process, and returns the output. */
static char *output_in_container(const char *variables, size_t length, const char *command)
{
	const char *const words[] = {"/bin/sh", "-c", command, NULL};
	int output[2];
	char *text;
	pid_t pid;

	if (pipe(output) < 0)
		abort();
	pid = fork();
	if (pid == 0) {
		const struct entry entry = {
			.keeper = getpid(),
			.directory = place,
			.variables = variables,
			.length = length,
			.clients = "/clients",
		};

		(void)dup2(output[1], STDOUT_FILENO);
		enter(&entry, (char *const *)words);
	}
	(void)close(output[1]);
	text = read_all(output[0], NULL);
	(void)close(output[0]);
	(void)wait_for(pid);
	return text == NULL ? format_text("%s", "") : text;
}

static bool has_path(const char *variables, size_t length, const char *path)
{
	char *text = output_in_container(variables, length, "echo $PATH");
	bool same = strncmp(text, path, strlen(path)) == 0 && strcmp(text + strlen(path), "\n") == 0;

	if (!same)
		printf("PATH is %s", text);
	free(text);
	return same;
}

#define HAS_PATH(variables, path) has_path(variables, sizeof(variables), path)

static void image_variables_do_not_override_those_of_slurm(void)
{
	static const char variables[] = "COLOUR=image\0SLURM_PROCID=0\0SLURMD_NODENAME=image\0"
					"PMIX_RANK=0\0PMI_RANK=0\0PMIX_MCA_gds=hash\0SLURMX=image";
	static const char command[] = "echo $COLOUR $SLURM_PROCID $SLURMD_NODENAME $PMIX_RANK "
				      "$PMI_RANK $PMIX_MCA_gds $SLURMX";
	char *text;

	(void)setenv("COLOUR", "job", 1);
	(void)setenv("SLURM_PROCID", "7", 1);
	(void)setenv("SLURMD_NODENAME", "cpu-1", 1);
	(void)setenv("PMIX_RANK", "7", 1);
	(void)setenv("PMI_RANK", "7", 1);
	text = output_in_container(variables, sizeof(variables), command);
	CHECK(strcmp(text, "image 7 cpu-1 7 7 hash image\n") == 0);
	free(text);
}

static bool has_for_pytorch(const char *nodes, const char *tasks, const char *expected)
{
	static const char variables[] = "PYTORCH_VERSION=2";
	static const char command[] = "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR "
				      "$MASTER_PORT $OMP_NUM_THREADS";
	char *text;
	bool same;

	(void)setenv("SLURM_STEP_NODELIST", nodes, 1);
	(void)setenv("SLURM_STEP_NUM_TASKS", tasks, 1);
	text = output_in_container(variables, sizeof(variables), command);
	same = strcmp(text, expected) == 0;
	if (!same)
		printf("The variables are %s", text);
	free(text);
	return same;
}

static void pytorch_images_have_the_variables_of_torch_distributed(void)
{
	(void)setenv("SLURM_JOB_ID", "70000", 1);
	(void)setenv("SLURM_PROCID", "5", 1);
	(void)setenv("SLURM_LOCALID", "1", 1);
	(void)setenv("SLURM_NTASKS", "8", 1);
	(void)setenv("SLURM_STEP_NUM_NODES", "2", 1);
	CHECK(has_for_pytorch("gpu-[3-4,7],cpu-0", "8", "5 1 8 gpu-3 62960 1\n"));
	CHECK(has_for_pytorch("gpu-[07,09]", "2", "5 1 8 gpu-07 62960\n"));
	CHECK(has_for_pytorch("cpu-0", "2", "5 1 8 cpu-0 62960\n"));
	CHECK(has_for_pytorch("cpu-1,gpu-[0-1]", "2", "5 1 8 cpu-1 62960\n"));

	/* Variables of the user. Each task needs its own ranks, which a batch script passes on. */
	(void)setenv("RANK", "0", 1);
	(void)setenv("LOCAL_RANK", "0", 1);
	(void)setenv("WORLD_SIZE", "4", 1);
	(void)setenv("MASTER_ADDR", "head", 1);
	(void)setenv("MASTER_PORT", "1234", 1);
	(void)setenv("OMP_NUM_THREADS", "6", 1);
	CHECK(has_for_pytorch("cpu-0", "8", "5 1 4 head 1234 6\n"));
}

static void programs_of_the_driver_are_on_path(void)
{
	make_directory("drivers");
	make_directory("drivers/bin");
	CHECK(HAS_PATH("PATH=/bin", "/bin:/clients"));

	write_lines("drivers/bin/nvidia-smi", "");
	CHECK(HAS_PATH("PATH=/bin", "/bin:/clients:drivers/bin"));
	CHECK(HAS_PATH("PATH=/bin\0NVIDIA_VISIBLE_DEVICES=all", "/bin:/clients:drivers/bin"));
	CHECK(HAS_PATH("PATH=/bin\0NVIDIA_VISIBLE_DEVICES=void", "/bin:/clients"));
}

static void node_without_a_driver_has_only_a_broken_link(void)
{
	make_directory("drivers");
	make_directory("drivers/lib");
	CHECK(symlink("libcuda.so.1", "drivers/lib/libcuda.so") == 0);
	CHECK(!uses_libraries_of_driver());

	write_lines("drivers/lib/libcuda.so.1", "");
	CHECK(uses_libraries_of_driver());
}

static const struct test tests[] = {
	TEST(recorded_image_starts_without_the_importer),
	TEST(importer_runs_if_other_users_can_change_the_cache),
	TEST(importer_runs_if_the_cache_belongs_to_another_user),
	TEST(importer_runs_if_a_part_of_the_cache_belongs_to_another_user),
	TEST(user_can_link_the_cache_to_another_place),
	TEST(step_that_joins_a_container_locks_its_image),
	TEST(step_cannot_join_a_container_without_image),
	TEST(step_that_joins_with_the_same_image_is_silent),
	TEST(step_that_joins_enters_the_namespaces_of_the_container),
	TEST(warning_lists_options_that_a_running_container_lacks),
	TEST(restarted_container_keeps_its_image),
	TEST(running_container_is_not_started_again),
	TEST(image_variables_do_not_override_those_of_slurm),
	TEST(pytorch_images_have_the_variables_of_torch_distributed),
	TEST(programs_of_the_driver_are_on_path),
	TEST(node_without_a_driver_has_only_a_broken_link),
};

int main(void)
{
	int status;

	if (mkdtemp(place) == NULL) {
		perror(place);
		return EXIT_FAILURE;
	}
	status = run_tests(tests, ARRAY_SIZE(tests), prepare, NULL);
	(void)nftw(place, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	return status;
}

#include "enter.h"

#include "drivers.h"
#include "environment.h"
#include "fail.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Exit status of shells for a program that does not exist. */
#define NOT_FOUND 127

/* ---- variables ---- */

/*
 * Removes the locale's variables. Most images lack the job's locale, so programs would otherwise
 * print warnings.
 */
static void forget_locale(const char *kept)
{
	static const char *const names[] = {"LANG", "LANGUAGE", "LC_ALL"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!is_named(kept, names[i], strlen(names[i])))
			(void)unsetenv(names[i]);
}

static void copy_variable(const char *from, const char *to, int overwrite)
{
	const char *value = getenv(from);

	if (value != NULL)
		(void)setenv(to, value, overwrite);
}

/* Sets MASTER_ADDR to the first node of a list such as "cpu-[0-3,7],gpu-0". */
static void set_master_address(const char *nodes)
{
	size_t prefix = strcspn(nodes, "[,");
	const char *number = nodes[prefix] == '[' ? nodes + prefix + 1 : "";
	char *name = format_text("%.*s%.*s", (int)prefix, nodes, (int)strcspn(number, "-,]"),
				 number);

	(void)setenv("MASTER_ADDR", name, 0);
	free(name);
}

/* Returns the number in a variable, or 1 if the variable is missing. */
static long number_in(const char *name)
{
	const char *value = getenv(name);

	return value == NULL ? 1 : strtol(value, NULL, 10);
}

/* Sets the variables of torch.distributed in PyTorch images, which set PYTORCH_VERSION. */
static void set_for_pytorch(void)
{
	const char *nodes = getenv("SLURM_STEP_NODELIST"), *job = getenv("SLURM_JOB_ID");
	char *port;

	if (getenv("PYTORCH_VERSION") == NULL)
		return;
	copy_variable("SLURM_PROCID", "RANK", 1);
	copy_variable("SLURM_LOCALID", "LOCAL_RANK", 1);
	copy_variable("SLURM_NTASKS", "WORLD_SIZE", 0);
	if (nodes != NULL)
		set_master_address(nodes);
	if (job != NULL) {
		port = format_text("%ld", 61000 + strtol(job, NULL, 10) % 4536);
		(void)setenv("MASTER_PORT", port, 0);
		free(port);
	}
	/*
	 * Otherwise each task would start threads for all CPUs of the node. torchrun sets the same
	 * value.
	 */
	if (number_in("SLURM_STEP_NUM_TASKS") > number_in("SLURM_STEP_NUM_NODES"))
		(void)setenv("OMP_NUM_THREADS", "1", 0);
}

/* Appends the directory to PATH, so that commands of the image have precedence. */
static void add_to_path(const char *directory)
{
	const char *path = getenv("PATH");

	if (path != NULL)
		(void)setenv("PATH", format_text("%s:%s", path, directory), 1);
}

static void set_environment(const struct entry *entry)
{
	forget_locale(entry->kept_variables);
	set_variables(entry->variables, entry->length, entry->kept_variables);
	set_for_pytorch();
	if (entry->clients != NULL)
		add_to_path(entry->clients);
	/* Programs of the driver, such as nvidia-smi. */
	if (uses_programs_of_driver())
		add_to_path(DRIVERS "/bin");
}

/* ---- users ---- */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* Skips `steps` instructions if the loaded value equals `value`. */
#define IF_IS(value, steps) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, steps, 0)

/*
 * Makes system calls that change owners or users return success without effect. Package managers
 * use these calls, which would otherwise fail because the container maps only one user.
 */
static void pretend_other_users(void)
{
	static struct sock_filter steps[] = {
		LOAD(arch),
		IF_IS(AUDIT_ARCH_X86_64, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		LOAD(nr),
		IF_IS(SYS_chown, 12),
		IF_IS(SYS_fchown, 11),
		IF_IS(SYS_lchown, 10),
		IF_IS(SYS_fchownat, 9),
		IF_IS(SYS_setuid, 8),
		IF_IS(SYS_setgid, 7),
		IF_IS(SYS_setgroups, 6),
		IF_IS(SYS_setreuid, 5),
		IF_IS(SYS_setregid, 4),
		IF_IS(SYS_setresuid, 3),
		IF_IS(SYS_setresgid, 2),
		IF_IS(SYS_setfsuid, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
	};
	const struct sock_fprog filter = {.len = ARRAY_SIZE(steps), .filter = steps};

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) < 0)
		fail("cannot install the seccomp filter: %s: contact the cluster operator",
		     strerror(errno));
}

/* ---- keeper ---- */

/*
 * Ends the keeper, because the tasks now keep the namespaces alive. Otherwise slurmstepd would kill
 * the keeper after the last task, and wait for a second.
 */
static void end_keeper(int keeper_fd)
{
	struct pollfd end = {.fd = keeper_fd, .events = POLLIN};

	(void)syscall(SYS_pidfd_send_signal, keeper_fd, SIGKILL, NULL, 0);
	(void)poll(&end, 1, 1000);
}

/* ---- command ---- */

void enter(const struct entry *entry, char *const command[])
{
	int fd = (int)syscall(SYS_pidfd_open, entry->keeper, 0);

	if (fd < 0 || setns(fd, entry->kinds) < 0)
		fail("cannot enter the container: %s: start the job again", strerror(errno));
	if (entry->entered != NULL && is_last_task(entry->entered))
		end_keeper(fd);
	(void)close(fd);
	if (chdir(entry->directory) < 0)
		fail("cannot change to the working directory %s in the container: %s: "
		     "set another directory with --container-workdir",
		     entry->directory, strerror(errno));
	set_environment(entry);
	if (entry->as_root)
		pretend_other_users();
	(void)execvp(command[0], command);
	tell("cannot run %s in the container: %s: "
	     "check that the program exists in the container, and is executable",
	     command[0], strerror(errno));
	_Exit(errno == ENOENT ? NOT_FOUND : CANNOT_START);
}

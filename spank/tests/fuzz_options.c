/*
 * Fuzz target for the parser of options (options.c). The lines of the input are arguments of
 * plugstack.conf. The text after the first NUL byte is the content of the file that node= names.
 *
 * To build it for libFuzzer:
 *
 *   clang -g -fsanitize=fuzzer,address,undefined -DLIBFUZZER -I. tests/fuzz_options.c
 *
 * Without LIBFUZZER, main() parses random texts that consist of known words: ./fuzz_options [RUNS
 * [SEED]].
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/spank.h>

#define MAX_ARGUMENTS 128

static const char *file;
static size_t file_left;

static int fake_fstat(struct stat *status)
{
	memset(status, 0, sizeof(*status));
	status->st_mode = S_IFREG | 0644;
	return 0;
}

static ssize_t fake_read(void *buffer, size_t size)
{
	size_t n = file_left < size ? file_left : size;

	memcpy(buffer, file, n);
	file += n;
	file_left -= n;
	return (ssize_t)n;
}

void slurm_error(const char *format, ...)
{
	(void)format;
}

#define open(path, flags) 1000
#define close(fd) 0
#define fstat(fd, status) fake_fstat(status)
#define read(fd, buffer, size) fake_read(buffer, size)

#include "report.c"
#include "options.c"

#undef open
#undef close
#undef fstat
#undef read

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "expected: %s\n", what);
	abort();
}

/* Checks that accepted options have the properties on which the rest of the plugin relies. */
static void check_accepted(const struct config *config)
{
	require(config->jail != NULL && is_plain_path(config->jail), "jail is a path");
	require(config->scratch != NULL && is_plain_path(config->scratch), "scratch is a path");
	require(config->shm != NULL && is_plain_path(config->shm), "shm is a path");
	require(config->n_binds <= MAX_LISTED, "at most MAX_LISTED binds");
	for (size_t i = 0; i < config->n_binds; i++)
		require(is_plain_path(config->binds[i].path), "bind is a path");
	require(config->through.n <= MAX_LISTED, "at most MAX_LISTED values of through=");
	for (size_t i = 0; i < config->through.n; i++)
		require(is_plain_path(config->through.values[i]), "each value of through= is a path");
	require(config->devices.n <= MAX_LISTED, "at most MAX_LISTED values of device=");
	for (size_t i = 0; i < config->devices.n; i++)
		require(is_device_pattern(config->devices.values[i]), "device is a name");
	require(config->through.n == 0 || config->overlay, "through= only with overlay=yes");
	require(config->devices.n == 0 || config->private_dev, "device= only with private_dev=yes");
	require(config->tmp_size <= MAX_SIZE && config->shm_size <= MAX_SIZE &&
		config->var_tmp_size <= MAX_SIZE, "sizes are at most MAX_SIZE");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct config config;
	char *arguments[MAX_ARGUMENTS];
	char *text = malloc(size + 1);
	char *rest = text;
	int n = 0, rc;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	file = text + strlen(text);
	file_left = size - strlen(text);
	if (file_left > 0) {
		file++;
		file_left--;
	}
	while (rest != NULL && rest[0] != '\0' && n < MAX_ARGUMENTS)
		arguments[n++] = strsep(&rest, "\n");
	refusal[0] = '\0';
	rc = parse_options(&config, n, arguments);
	require(rc == ACCEPTED || rc == REFUSED, "the code is ACCEPTED or REFUSED");
	require((rc == REFUSED) == (refusal[0] != '\0'), "a refusal has a reason");
	if (rc == ACCEPTED)
		check_accepted(&config);
	free(text);
	return 0;
}

#ifndef LIBFUZZER

static const char *const words[] = {
	"jail=/mnt/jail\n", "scratch=/scratch\n", "node=/etc/node.conf\n", "shm=/dev/shm\n",
	"overlay=yes\n", "through=/home\n", "private_dev=yes\n", "device=nvidia*\n",
	"no_new_privs=no\n", "spool=/spool\n", "shm_size=64M\n", "bind_ro=/etc/hosts\n",
	"bind=/run/munge\n",
	"overlay=", "private_dev=", "spool=", "no_new_privs=", "through=", "device=",
	"tmp_size=", "var_tmp_size=", "shm_size=", "bind=", "bind_ro=", "jail=", "node=", "yes",
	"no", "\n", "/", "/home", ".", "..", "nvidia*", "9", "18446744073709551616", "1K", "64M",
	"T", "#", " ", "=", "\r", "\xff",
};

/* State of xorshift64*, which gives the same numbers on every machine. */
static uint64_t random_state;

static uint64_t random_below(uint64_t end)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return (random_state * UINT64_C(2685821657736338717) >> 16) % end;
}

/* Writes mostly words, sometimes a NUL or random byte, and rarely a long run of one byte. */
static size_t random_text(uint8_t *text, size_t room)
{
	size_t size = 0;
	uint64_t parts = random_below(24);

	/* Half of the texts begin with required options, so that the parser accepts some texts. */
	if (random_below(2) == 0)
		size = (size_t)snprintf((char *)text, room, "%s%s", words[0], words[1]);
	for (uint64_t i = 0; i < parts; i++) {
		uint64_t kind = random_below(64);
		const char *word = words[random_below(sizeof(words) / sizeof(words[0]))];
		size_t length = kind == 0 ? (size_t)random_below(20000) : kind < 4 ? 1 : strlen(word);

		if (size + length > room)
			break;
		if (kind == 0)
			memset(text + size, (int)random_below(256), length);
		else if (kind < 4)
			text[size] = kind == 1 ? 0 : (uint8_t)random_below(256);
		else
			memcpy(text + size, word, length);
		size += length;
	}
	return size;
}

int main(int argc, char **argv)
{
	static uint8_t text[65536];
	unsigned long runs = argc > 1 ? strtoul(argv[1], NULL, 10) : 200000;
	unsigned long accepted = 0;

	random_state = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	for (unsigned long i = 0; i < runs; i++) {
		(void)LLVMFuzzerTestOneInput(text, random_text(text, sizeof(text)));
		accepted += refusal[0] == '\0';
	}
	printf("%lu texts, %lu of them accepted\n", runs, accepted);
	/* Fail if no text was accepted: such a run tests only refusals. */
	return runs > 1000 && accepted == 0 ? 1 : 0;
}

#endif

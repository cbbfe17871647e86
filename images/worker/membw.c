/*
 * membw THREADS MIB: measures the memory bandwidth of the node with THREADS simultaneous threads.
 *
 * The program runs two kernels of J. McCalpin's STREAM, the standard memory benchmark: copy (c = a)
 * and triad (a = b + s * c). As in STREAM, the bandwidth refers to the bytes that the program reads
 * and writes (16 and 24 per element), and 1 MB is 10^6 bytes. The program reports the best of ten
 * rounds, and verifies the results. The three arrays have MIB MiB in total, which must be far more
 * than all caches.
 *
 * Each thread works on its own part of the arrays. The thread itself writes this part first,
 * because Linux then allocates the part in the memory nearest to the thread.
 *
 * The program prints `threads`, `array`, `copy` and `triad`, each on its own line. It exits with 1
 * on an error or a wrong result.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 10, MAX_THREADS = 4096 };

static const double SCALAR = 3.0;

static double *a, *b, *c;
static size_t elements;
static long threads;
static pthread_barrier_t barrier;
static double copy_seconds = 1e30, triad_seconds = 1e30;

struct part {
	size_t from, to;
	double wrong;
};

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Waits until all threads have called this function. Returns the time in seconds. */
static double together(void)
{
	pthread_barrier_wait(&barrier);
	return now();
}

static void keep_least(double *least, double seconds)
{
	if (seconds < *least)
		*least = seconds;
}

static void *work(void *argument)
{
	struct part *part = argument;
	size_t i;
	int round;

	for (i = part->from; i < part->to; i++) {
		a[i] = 1.0;
		b[i] = 2.0;
		c[i] = 0.0;
	}
	for (round = 0; round < ROUNDS; round++) {
		double start = together();
		for (i = part->from; i < part->to; i++)
			c[i] = a[i];
		double between = together();
		for (i = part->from; i < part->to; i++)
			a[i] = b[i] + SCALAR * c[i];
		double end = together();
		/*
		 * Do not count the first round, which only loads the pages. One thread keeps the
		 * times.
		 */
		if (part->from == 0 && round > 0) {
			keep_least(&copy_seconds, between - start);
			keep_least(&triad_seconds, end - between);
		}
	}
	double wanted = 1.0;
	for (round = 0; round < ROUNDS; round++)
		wanted = 2.0 + SCALAR * wanted;
	for (i = part->from; i < part->to; i++)
		part->wrong += a[i] != wanted;
	return NULL;
}

static long number(const char *text, long most)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno != 0 || *text == '\0' || *end != '\0' || value < 1 || value > most) {
		fprintf(stderr, "membw: '%s': expected a whole number from 1 to %ld\n", text, most);
		exit(1);
	}
	return value;
}

static double *array(void)
{
	void *memory = NULL;

	if (posix_memalign(&memory, 64, elements * sizeof(double)) != 0) {
		fprintf(stderr, "membw: cannot allocate an array of %zu MB: request less memory\n",
			elements * sizeof(double) / 1000000);
		exit(1);
	}
	return memory;
}

int main(int argc, char **argv)
{
	static pthread_t ids[MAX_THREADS];
	static struct part parts[MAX_THREADS];
	double bytes, wrong = 0;
	long i;

	if (argc != 3) {
		fprintf(stderr, "usage: membw THREADS MIB\n");
		return 1;
	}
	threads = number(argv[1], MAX_THREADS);
	elements = (size_t)number(argv[2], 1L << 30) * 1024 * 1024 / 3 / sizeof(double);
	a = array();
	b = array();
	c = array();
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
	for (i = 0; i < threads; i++) {
		parts[i].from = elements * (size_t)i / (size_t)threads;
		parts[i].to = elements * (size_t)(i + 1) / (size_t)threads;
		int failed = pthread_create(&ids[i], NULL, work, &parts[i]);
		if (failed != 0) {
			fprintf(stderr, "membw: cannot start a thread: %s\n", strerror(failed));
			return 1;
		}
	}
	for (i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		wrong += parts[i].wrong;
	}
	bytes = (double)elements * sizeof(double) / 1e6;
	printf("threads %ld\narray %.0f MB\n", threads, bytes);
	printf("copy %.0f MB/s\ntriad %.0f MB/s\n", 2 * bytes / copy_seconds, 3 * bytes / triad_seconds);
	if (wrong > 0) {
		printf("wrong %.0f\n", wrong);
		return 1;
	}
	return 0;
}

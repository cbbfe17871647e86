/* The checks and the runner of the C tests. */
#ifndef SLURMSTACK_TESTS_CHECKS_H
#define SLURMSTACK_TESTS_CHECKS_H

#include <stdio.h>
#include <stdlib.h>

static unsigned int failures_in_test;

#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			failures_in_test++;                                                \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);             \
		}                                                                          \
	} while (0)

#define TEST(function) {#function, function}

struct test {
	const char *name;
	void (*run)(void);
};

/*
 * Runs the tests. Calls `prepare` before each test, and `clean` after each test unless it is NULL.
 * Returns an exit status.
 */
static int run_tests(const struct test *all, size_t n, void (*prepare)(void), void (*clean)(void))
{
	unsigned int failed = 0;

	for (size_t i = 0; i < n; i++) {
		failures_in_test = 0;
		prepare();
		all[i].run();
		if (clean != NULL)
			clean();
		printf("%s %s\n", failures_in_test == 0 ? "ok  " : "FAIL", all[i].name);
		failed += failures_in_test != 0;
	}
	printf("%zu passed, %u failed\n", n - failed, failed);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif

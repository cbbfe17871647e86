/* Helpers that run programs and read files. */
#ifndef SLURMSTACK_CONTAINER_RUN_H
#define SLURMSTACK_CONTAINER_RUN_H

#include <stddef.h>
#include <sys/types.h>

/* Waits for a child process, and returns its status. */
int wait_for(pid_t pid);

/* Takes an exclusive flock(2). If it fails, prints an error about `what`, and exits. */
void lock_file(int fd, const char *what);

/*
 * Runs a program and returns its output without the last newline; the caller frees the output.
 * Returns NULL if the program fails. Does not redirect the standard error.
 */
char *output_of(const char *const argv[]);

/* Reads a file to its end. Returns the text, which the caller frees; or NULL with errno. */
char *read_all(int fd, size_t *length);

/* Reads a file below a directory, as read_all does. */
char *read_text(int directory_fd, const char *name, size_t *length);

#endif

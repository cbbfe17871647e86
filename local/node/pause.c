/* Keeps a pod's namespaces alive: sleeps, and exits on SIGTERM or SIGINT. If the pod shares its
 * process namespace, it also reaps orphaned processes. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal_number)
{
    (void)signal_number;
    _exit(EXIT_SUCCESS);
}

static void reap(int signal_number)
{
    (void)signal_number;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int main(void)
{
    const struct sigaction on_stop = {.sa_handler = leave};
    const struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};

    if (sigaction(SIGTERM, &on_stop, NULL) < 0 || sigaction(SIGINT, &on_stop, NULL) < 0 ||
        sigaction(SIGCHLD, &on_child, NULL) < 0)
        return EXIT_FAILURE;
    for (;;)
        pause();
}

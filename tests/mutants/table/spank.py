"""Faults in spank/: steps that run outside of the jail or see resources of others."""

from typing import Final

from tests.mutants.fault import Fault

_TESTS: Final = (
    "tests/unit/spank/test_spank.py::test_c_tests_of_the_plugin_pass_under_the_sanitizers"
)

FAULTS: Final = (
    Fault(
        "jobs of a node with an empty node.conf are not isolated",
        "spank",
        "spank/options.c",
        "(parse_node_file(config) < 0 || check_node_file(config) < 0))",
        "(parse_node_file(config) < 0 && check_node_file(config) < 0))",
        _TESTS,
    ),
    Fault(
        "a job can use all process ids of its machine",
        "spank",
        "spank/cgroups.c",
        "\tif (limit > machine_limit / SHARE)\n",
        "\tif (limit > machine_limit)\n",
        _TESTS,
    ),
    Fault(
        "a task starts outside of its job's cgroup",
        "spank",
        "spank/chroot.c",
        "\tif (processes_fd >= 0 && join_group(processes_fd, 0) < 0)\n",
        "\tif (processes_fd >= 0 && join_group(processes_fd, 0) > 0)\n",
        _TESTS,
    ),
    Fault(
        "steps together exceed the process limit of their job",
        "spank",
        "spank/chroot.c",
        "\tif (limits_fd >= 0 && check_number(limits_fd) < 0)\n",
        "\tif (limits_fd >= 0 && check_number(limits_fd) > 0)\n",
        _TESTS,
    ),
    Fault(
        "slurmstepd of one job may use all memory of its node",
        "spank",
        "spank/cgroups.c",
        "\trc = write_limit(group_fd, group, kind->memory, DAEMONS_MEMORY);\n",
        "\trc = ACCEPTED;\n",
        _TESTS,
    ),
    Fault(
        "a job may have any number of steps at once",
        "spank",
        "spank/chroot.c",
        "\tif (config.steps > 0 && n_steps->of_job > config.steps)\n",
        "\tif (config.steps > 0 && n_steps->of_job > UINT32_MAX)\n",
        _TESTS,
    ),
    Fault(
        "if memory runs out, the kernel kills daemons as readily as tasks",
        "spank",
        "spank/chroot.c",
        "#define OOM_FIRST 1000\n",
        "#define OOM_FIRST 0\n",
        _TESTS,
    ),
    Fault(
        "tasks may call bpf",
        "spank",
        "spank/chroot.c",
        "\tif (forbid_calls() < 0)\n",
        "\tif (false)\n",
        _TESTS,
    ),
    Fault(
        "Slurm treats a refusal of the plugin as success",
        "spank",
        "spank/report.h",
        "#define REFUSED (-1)",
        "#define REFUSED (1)",
        _TESTS,
    ),
    Fault(
        "jobs share the /tmp of the jail",
        "spank",
        "spank/mounts.c",
        '\t\t{job_fd, config->scratch, "tmp", "/tmp", config->tmp_size, true},\n',
        "",
        _TESTS,
    ),
    Fault(
        "a step starts although the node's root stays mounted",
        "spank",
        "spank/mounts.c",
        '\tif (umount2(".", MNT_DETACH) < 0)\n',
        '\tif (umount2(".", MNT_DETACH) > 0)\n',
        _TESTS,
    ),
    Fault(
        "slurmstepd sees the node's /proc while it opens a user's paths",
        "spank",
        "spank/chroot.c",
        "\tif (is_external(spank)) {\n",
        "\tif (ac >= 0) {\n",
        _TESTS,
    ),
    Fault(
        "files that slurmstepd has opened lead to the node's /proc",
        "spank",
        "spank/mounts.c",
        "\tif (unshare(CLONE_NEWNS) < 0)\n"
        '\t\treturn refuse("cannot unshare the mount namespace of slurmstepd: %s",\n',
        "\tif (config == NULL)\n"
        '\t\treturn refuse("cannot unshare the mount namespace of slurmstepd: %s",\n',
        _TESTS,
    ),
    Fault(
        "every user can reach slurmstepd's socket",
        "spank",
        "spank/files.c",
        "#define SOCKET_MODE 0600\n",
        "#define SOCKET_MODE 0666\n",
        _TESTS,
    ),
    Fault(
        "a mount point may be a link that a user made",
        "spank",
        "spank/mounts.c",
        ".resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS,",
        ".resolve = RESOLVE_IN_ROOT,",
        _TESTS,
    ),
    Fault(
        "a job accepts a directory that a user has prepared for it",
        "spank",
        "spank/files.c",
        "\telse if (status.st_uid != 0)\n",
        "\telse if (status.st_uid == (uid_t)-1)\n",
        _TESTS,
    ),
    Fault(
        "a refused step starts its tasks",
        "spank",
        "spank/chroot.c",
        "\tif (spank_remote(spank) == 0 || inside)\n",
        "\tif (spank_remote(spank) == 0 || !inside)\n",
        _TESTS,
    ),
    Fault(
        "leftover files of a job belong to the user until their removal",
        "spank",
        "spank/files.c",
        "\treturn fchown(fd, 0, 0) < 0 || fchmod(fd, PRIVATE_MODE) < 0 ? errno : 0;\n",
        "\t(void)fd;\n\treturn 0;\n",
        "tests/container/spank/test_endings.py"
        "::test_directories_of_an_ended_job_are_closed_to_others",
        "container",
    ),
    Fault(
        "the end of a job waits for the removal of its files",
        "spank",
        "spank/chroot.c",
        "\tpid_t pid = fork();\n",
        "\tpid_t pid = -1;\n",
        "tests/container/spank/test_endings.py"
        "::test_job_ends_while_another_job_fills_its_directories",
        "container",
    ),
)

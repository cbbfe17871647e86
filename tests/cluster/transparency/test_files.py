"""All nodes share one file tree. Its paths and permissions are the same as without Kubernetes.

Covers these parts of the original requirements:
- file system transparency: one view, the same paths, the same rights;
- the shared root: software, output and checkpoints that one node writes are on all nodes at once;
- separate directories of each node: /dev, /tmp, /proc and /run, and /dev/shm, which is in memory;
- files of a job: users need not copy them to the job's nodes or back;
- the row "file access" in the table that compares slurmstack with a Slurm cluster without
  Kubernetes.
"""

import pytest

from tests.cluster.transparency.shown import NODES, PLACES, at, common_answer, everywhere, write
from tests.support.cluster import Cluster


def test_all_nodes_share_one_file_tree(cluster: Cluster) -> None:
    outputs = everywhere(cluster, "ls /; stat --format='%n %i %Y' / /etc/passwd /usr/bin/python3 ~")

    for name in ("bin", "etc", "home", "lib", "opt", "root", "tmp", "usr", "var"):
        assert name in common_answer(outputs).split()


def test_no_path_or_mount_reveals_the_jail(cluster: Cluster) -> None:
    for outputs in everywhere(cluster, "ls -a / /mnt; cat /proc/self/mounts").values():
        assert "jail" not in outputs


def test_home_has_the_same_path_everywhere(cluster: Cluster) -> None:
    assert (
        common_answer(everywhere(cluster, "cd; pwd; echo $HOME")).split()
        == ["/home/researcher"] * 2
    )


def test_job_can_read_files_next_to_its_script(cluster: Cluster, folder: str) -> None:
    write(cluster, f"{folder}/input", "21")
    script = "#!/bin/sh\npwd\necho $(($(cat input) * 2)) >result"
    cluster.submit(folder, script, "--wait", "--output=where")

    assert cluster.run(f"cd {folder} && cat where result").split() == [folder, "42"]


def test_written_file_is_visible_on_all_nodes_at_once(cluster: Cluster, folder: str) -> None:
    """Jobs rely on this when they continue from a checkpoint on another node."""
    add = f"echo by $(hostname) after $(wc -l <{folder}/log) >>{folder}/log"
    steps = [at(place, add) for place in PLACES]

    output = cluster.run(f"touch {folder}/log; {'; '.join(steps)}; cat {folder}/log")

    assert output.splitlines() == ["by login-0 after 0", "by cpu-0 after 1", "by cpu-1 after 2"]


def test_file_has_the_same_owner_and_mode_everywhere(cluster: Cluster, folder: str) -> None:
    cluster.run(f"cd {folder} && install -m 640 /dev/null own && install -d -m 2750 shared")

    outputs = everywhere(cluster, f"cd {folder} && stat --format='%n %a %U %G' own shared")

    assert common_answer(outputs).splitlines() == [
        "own 640 researcher researcher",
        "shared 2750 researcher researcher",
    ]


def test_job_creates_files_with_the_users_umask(cluster: Cluster, folder: str) -> None:
    made = cluster.run(f"cd {folder} && umask 027 && srun touch made && stat -c '%a %U' made")

    assert made == "640 researcher"


def test_job_cannot_read_a_file_without_permission(cluster: Cluster, folder: str) -> None:
    cluster.run(f"cd {folder} && touch locked && chmod 0 locked")

    for place in PLACES:
        answer = cluster.ssh(at(place, f"cat {folder}/locked"), check=False)
        assert "Permission denied" in answer.stderr, place


@pytest.mark.parametrize(
    "act", ["cat /etc/shadow", "ls /root", "touch /usr/bin/mine", "rm /etc/passwd"]
)
def test_user_cannot_access_files_of_root(cluster: Cluster, act: str) -> None:
    answer = cluster.ssh(f"{act}; srun {act}", check=False)

    assert answer.stdout == ""
    assert answer.stderr.count("Permission denied") == 2, answer.stderr


def test_program_installed_on_one_node_runs_on_all(cluster: Cluster, folder: str) -> None:
    install = (
        f"cd {folder} && mkdir bin && printf '#!/bin/sh\\necho works' >bin/tool && chmod +x $_"
    )
    cluster.run(at(NODES[0], install.replace("$_", "bin/tool")))

    assert common_answer(everywhere(cluster, f"PATH={folder}/bin:$PATH tool")) == "works"


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp", "/dev/shm"])
def test_each_node_has_its_own_temporary_files(cluster: Cluster, folder: str, place: str) -> None:
    # --quiet, because a step that waits for the end of the previous one prints a message.
    script = f"""#!/bin/sh
srun --quiet sh -c 'touch {place}/from-$SLURMD_NODENAME'
srun --quiet sh -c 'echo $SLURMD_NODENAME: {place}/from-*'"""
    cluster.submit(folder, script, "--nodes=2", "--wait", "--output=out")

    assert sorted(cluster.run(f"cat {folder}/out").splitlines()) == [
        f"{node}: {place}/from-{node}" for node in NODES
    ]


def test_each_node_has_its_own_run_directory(cluster: Cluster, folder: str) -> None:
    """Test writable directories only. A user cannot notice whether other directories are shared."""
    # --quiet, because a step that waits for the end of the previous one prints a message.
    script = """#!/bin/sh
srun --quiet sh -c 'find -L /run -type d -writable 2>/dev/null | while read at
  do touch $at/from-$SLURMD_NODENAME; done'
srun --quiet sh -c 'find -L /run -name "from-*" 2>/dev/null | sed "s/^/$SLURMD_NODENAME /"'
srun --quiet find -L /run -name 'from-*' -user researcher -delete 2>/dev/null"""
    cluster.submit(folder, script, "--nodes=2", "--wait", "--output=out")

    output = cluster.run(f"cat {folder}/out").splitlines()
    own = [f"{node} /run/shm/from-{node}" for node in NODES]
    assert sorted(line for line in output if "/run/shm/" in line) == own
    for line in output:
        node, _, path = line.partition(" ")
        assert path.endswith(f"/from-{node}"), output


def test_each_node_has_its_own_proc_file_system(cluster: Cluster) -> None:
    outputs = everywhere(cluster, "cat /proc/sys/kernel/hostname; cat /proc/self/comm")

    assert {place: output.split() for place, output in outputs.items()} == {
        place: [place, "cat"] for place in PLACES
    }


def test_dev_has_the_usual_devices(cluster: Cluster) -> None:
    script = """
head --bytes=4 /dev/zero | wc --bytes
head --bytes=4 /dev/urandom | wc --bytes
echo gone >/dev/null
echo in | cat /dev/stdin
echo out >/dev/stdout
bash -c 'cat <(echo substituted)'"""

    assert common_answer(everywhere(cluster, script)).split() == [
        "4",
        "4",
        "in",
        "out",
        "substituted",
    ]


def test_dev_shm_is_a_tmpfs(cluster: Cluster) -> None:
    outputs = everywhere(cluster, "stat --file-system --format=%T /dev/shm")

    assert common_answer(outputs) == "tmpfs"

"""Files: one tree on all nodes, with the paths and the rights of a classic cluster.

For the seeds' table of file system transparency (one view, the same paths, the same rights), for
their shared root (software, output and checkpoints of one node are on the others at once; /dev,
/tmp, /proc and /run are each node's own, and there is room in memory), for the job's files that
need no transfer, and for the row "file access" of the comparison with a classic cluster.
"""

import pytest

from tests.cluster.transparency.shown import NODES, PLACES, at, everywhere, one, write
from tests.support.cluster import Cluster


def test_all_nodes_have_one_tree(cluster: Cluster) -> None:
    seen = everywhere(cluster, "ls /; stat --format='%n %i %Y' / /etc/passwd /usr/bin/python3 ~")

    for name in ("bin", "etc", "home", "lib", "opt", "root", "tmp", "usr", "var"):
        assert name in one(seen).split()


def test_no_place_of_the_tree_tells_of_a_jail(cluster: Cluster) -> None:
    for seen in everywhere(cluster, "ls -a / /mnt; cat /proc/self/mounts").values():
        assert "jail" not in seen


def test_the_home_has_one_path(cluster: Cluster) -> None:
    assert one(everywhere(cluster, "cd; pwd; echo $HOME")).split() == ["/home/researcher"] * 2


def test_a_job_finds_what_is_beside_its_script(cluster: Cluster, folder: str) -> None:
    write(cluster, f"{folder}/input", "21")
    script = "#!/bin/sh\npwd\necho $(($(cat input) * 2)) >result"
    cluster.submit(folder, script, "--wait", "--output=where")

    assert cluster.run(f"cd {folder} && cat where result").split() == [folder, "42"]


def test_what_one_node_writes_the_next_reads_at_once(cluster: Cluster, folder: str) -> None:
    """As a checkpoint from which a job on another node goes on."""
    add = f"echo by $(hostname) after $(wc -l <{folder}/log) >>{folder}/log"
    steps = [at(place, add) for place in PLACES]

    said = cluster.run(f"touch {folder}/log; {'; '.join(steps)}; cat {folder}/log")

    assert said.splitlines() == ["by login-0 after 0", "by cpu-0 after 1", "by cpu-1 after 2"]


def test_a_file_has_one_owner_and_one_mode(cluster: Cluster, folder: str) -> None:
    cluster.run(f"cd {folder} && install -m 640 /dev/null own && install -d -m 2750 shared")

    seen = everywhere(cluster, f"cd {folder} && stat --format='%n %a %U %G' own shared")

    assert one(seen).splitlines() == [
        "own 640 researcher researcher",
        "shared 2750 researcher researcher",
    ]


def test_a_job_makes_files_as_the_users_umask_says(cluster: Cluster, folder: str) -> None:
    made = cluster.run(f"cd {folder} && umask 027 && srun touch made && stat -c '%a %U' made")

    assert made == "640 researcher"


def test_a_file_that_its_owner_may_not_read_no_job_reads(cluster: Cluster, folder: str) -> None:
    cluster.run(f"cd {folder} && touch locked && chmod 0 locked")

    for place in PLACES:
        answer = cluster.ssh(at(place, f"cat {folder}/locked"), check=False)
        assert "Permission denied" in answer.stderr, place


@pytest.mark.parametrize(
    "act", ["cat /etc/shadow", "ls /root", "touch /usr/bin/mine", "rm /etc/passwd"]
)
def test_what_belongs_to_root_is_roots(cluster: Cluster, act: str) -> None:
    answer = cluster.ssh(f"{act}; srun {act}", check=False)

    assert answer.stdout == ""
    assert answer.stderr.count("Permission denied") == 2, answer.stderr


def test_what_a_user_installs_on_one_node_runs_on_all(cluster: Cluster, folder: str) -> None:
    install = (
        f"cd {folder} && mkdir bin && printf '#!/bin/sh\\necho works' >bin/tool && chmod +x $_"
    )
    cluster.run(at(NODES[0], install.replace("$_", "bin/tool")))

    assert one(everywhere(cluster, f"PATH={folder}/bin:$PATH tool")) == "works"


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp", "/dev/shm"])
def test_temporary_files_are_each_nodes_own(cluster: Cluster, folder: str, place: str) -> None:
    # Quiet, since a step that waits for the end of the one before says so.
    script = f"""#!/bin/sh
srun --quiet sh -c 'touch {place}/from-$SLURMD_NODENAME'
srun --quiet sh -c 'echo $SLURMD_NODENAME: {place}/from-*'"""
    cluster.submit(folder, script, "--nodes=2", "--wait", "--output=out")

    assert sorted(cluster.run(f"cat {folder}/out").splitlines()) == [
        f"{node}: {place}/from-{node}" for node in NODES
    ]


def test_run_is_each_nodes_own(cluster: Cluster, folder: str) -> None:
    """As far as a user can tell: whoever can write nothing there shares nothing either."""
    # Quiet, since a step that waits for the end of the one before says so.
    script = """#!/bin/sh
srun --quiet sh -c 'find -L /run -type d -writable 2>/dev/null | while read at
  do touch $at/from-$SLURMD_NODENAME; done'
srun --quiet sh -c 'find -L /run -name "from-*" 2>/dev/null | sed "s/^/$SLURMD_NODENAME /"'
srun --quiet find -L /run -name 'from-*' -user researcher -delete 2>/dev/null"""
    cluster.submit(folder, script, "--nodes=2", "--wait", "--output=out")

    said = cluster.run(f"cat {folder}/out").splitlines()
    own = [f"{node} /run/shm/from-{node}" for node in NODES]
    assert sorted(line for line in said if "/run/shm/" in line) == own
    for line in said:
        node, _, found = line.partition(" ")
        assert found.endswith(f"/from-{node}"), said


def test_proc_is_each_nodes_own(cluster: Cluster) -> None:
    seen = everywhere(cluster, "cat /proc/sys/kernel/hostname; cat /proc/self/comm")

    assert {place: said.split() for place, said in seen.items()} == {
        place: [place, "cat"] for place in PLACES
    }


def test_dev_holds_what_programs_need(cluster: Cluster) -> None:
    script = """
head --bytes=4 /dev/zero | wc --bytes
head --bytes=4 /dev/urandom | wc --bytes
echo gone >/dev/null
echo in | cat /dev/stdin
echo out >/dev/stdout
bash -c 'cat <(echo substituted)'"""

    assert one(everywhere(cluster, script)).split() == ["4", "4", "in", "out", "substituted"]


def test_there_is_room_in_memory(cluster: Cluster) -> None:
    seen = everywhere(cluster, "stat --file-system --format=%T /dev/shm")

    assert one(seen) == "tmpfs"

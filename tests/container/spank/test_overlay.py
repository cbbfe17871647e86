"""With an overlay, changes of a job in the shared root are invisible to other jobs."""

from tests.support.spank import Node
from tests.support.waiting import eventually


def test_changes_in_the_overlay_are_private_and_temporary(node: Node) -> None:
    node.root("echo shared >/mnt/jail/srv/file; chmod 0666 /mnt/jail/srv/file")
    node.isolate(overlay=True)

    output = node.job("echo mine >/srv/file; touch /srv/new; cat /srv/file")

    assert output == "mine"
    assert node.root("cat /mnt/jail/srv/file; ls /mnt/jail/srv") == "shared\nfile"
    assert node.job("cat /srv/file; ls /srv").split() == ["shared", "file"]


def test_steps_of_a_job_share_changes_in_the_overlay(node: Node) -> None:
    node.isolate(overlay=True)
    job = node.submit("touch /srv/of-the-job; echo ready; sleep 1000")
    eventually("the job has written", lambda: "ready" in node.output(job))

    assert node.job("ls /srv/of-the-job", f"--jobid={job}", "--overlap") == "/srv/of-the-job"
    assert node.job("ls /srv/of-the-job 2>/dev/null || echo no") == "no"


def test_shared_directories_stay_shared_with_an_overlay(node: Node) -> None:
    node.isolate(overlay=True, shared=["/home", "/shared"])

    node.job("echo kept >/home/researcher/note; echo kept >/shared/note")

    assert node.root("cat /mnt/jail/home/researcher/note /mnt/jail/shared/note") == "kept\nkept"


def test_option_through_keeps_volumes_in_the_jail_shared(node: Node) -> None:
    switches = "no_new_privs=no\nprivate_dev=no\noverlay=yes\n"
    node.configure(f"{switches}through=/home\nthrough=/srv\n")

    node.job("echo kept >/srv/through")

    assert node.root("cat /mnt/jail/srv/through") == "kept"
    node.root("rm /mnt/jail/srv/through")

"""The Job that creates home directories, in the real image, on a volume that becomes full."""

from components import conventions as c
from tests.container.jail.volumes import Volumes
from tests.support.containers import put

PASSWD = "ada:*:2000:2000:A:/home/ada:/bin/bash\nbob:*:2001:2001:B:/home/bob:/bin/bash\n"
HOMES = f"python3 -m agents.homes /tmp/passwd {c.JAIL}"
FILL = f"dd if=/dev/zero of={c.JAIL}/data bs=4k"


def test_reports_a_full_volume_and_creates_the_home_later(
    volumes: Volumes,
) -> None:
    shell = volumes.shell(volumes.make("4m"), "agents")
    put(shell.container, {"/tmp/passwd": PASSWD.splitlines()[0] + "\n"})
    shell.answer(f"mkdir -p {c.JAIL}/home {c.JAIL}/etc/skel && echo hi >{c.JAIL}/etc/skel/.bashrc")
    shell.answer(HOMES, user="root")
    put(shell.container, {"/tmp/passwd": PASSWD})
    shell.run(FILL)

    code, output = shell.run(HOMES, user="root")

    assert code == c.JAIL_REFUSED
    message = "the jail's volume is full: /home/bob needs 1 MiB, and 0 MiB are free; "
    # The order of lines varies, because standard output and standard error use two pipes.
    assert any(line.startswith(f"error: {message}") for line in output.splitlines())
    assert shell.answer("cat /dev/termination-log").startswith(message)
    assert shell.answer(f"ls -A {c.JAIL}/home") == "ada"
    shell.answer(f"rm {c.JAIL}/data")
    shell.answer(HOMES, user="root")
    assert shell.answer(f"stat -c %a {c.JAIL}/home/bob") == "700"
    assert shell.answer(f"cat {c.JAIL}/home/bob/.bashrc") == "hi"

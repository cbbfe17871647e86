"""The C tests of the SPANK plugin, its manual page, and its exported symbols."""

import re
import subprocess
from pathlib import Path

from local.paths import ROOT

SPANK = ROOT / "spank"


def test_c_tests_of_the_plugin_pass_under_the_sanitizers() -> None:
    """`make test` needs a C compiler and slurm/spank.h (Debian: gcc, make, libslurm-dev)."""
    run = subprocess.run(
        ["make", "-C", str(SPANK), "test"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert ", 0 failed" in run.stdout, run.stdout


def test_option_parser_survives_fuzzing() -> None:
    run = subprocess.run(
        ["make", "-C", str(SPANK), "fuzz", "RUNS=20000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_manual_page_explains_exactly_the_options_of_the_plugin() -> None:
    page = (SPANK / "slurmstack-chroot.8").read_text()
    explained = re.findall(r"^\.TP\n\.BI (\w+)=", page, re.MULTILINE)
    known = re.findall(r'^\t\{"(\w+)", [A-Z_]+, ', (SPANK / "options.c").read_text(), re.MULTILINE)
    assert sorted(explained) == sorted(known)
    assert len(known) > 10


def test_plugin_exports_only_its_callbacks(tmp_path: Path) -> None:
    """A hidden symbol cannot replace a symbol of slurmstepd."""
    subprocess.run(
        ["make", "-C", str(SPANK), "install", f"DESTDIR={tmp_path}", "PLUGINDIR=/plugin"],
        capture_output=True,
        check=True,
    )
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", str(tmp_path / "plugin" / "chroot.so")],
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.split()[-1] for line in listing.stdout.splitlines()}
    assert names == {
        "plugin_name",
        "plugin_type",
        "plugin_version",
        "spank_plugin_version",
        "slurm_spank_init",
        "slurm_spank_exit",
        "slurm_spank_init_post_opt",
        "slurm_spank_user_init",
        "slurm_spank_task_init_privileged",
        "slurm_spank_task_init",
        "slurm_spank_task_post_fork",
        "slurm_spank_job_epilog",
    }

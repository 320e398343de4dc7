"""Who started a process, told by `ps` where there is no `/proc`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from repotrace.system.ancestry import name_and_parent

pytestmark = pytest.mark.skipif(shutil.which("ps") is None, reason="ps is not installed")


def test_the_name_and_the_parent_of_a_process() -> None:
    child = subprocess.Popen(["sh", "-c", "read x; true"], stdin=subprocess.PIPE)
    try:
        assert name_and_parent(child.pid) == ("sh", os.getpid())
    finally:
        child.communicate(b"\n")
    assert name_and_parent(os.getpid())[1] == os.getppid()


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="needs /proc to compare with")
def test_the_same_as_the_kernel_says() -> None:
    name = Path("/proc/self/comm").read_text().strip()
    assert name_and_parent(os.getpid()) == (name, os.getppid())


def test_a_process_that_is_gone_is_an_error() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(ValueError, match="invalid literal"):
        name_and_parent(child.pid)

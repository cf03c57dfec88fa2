import os
import subprocess
import sys

from tests.deployments.conftest import ROOT, free_port


def test_losing_a_node_changes_no_byte():
    """In a process of its own: a cluster of several nodes cannot live beside the one of the other tests."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.deployments.node_loss", str(free_port())],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "same" in result.stdout.splitlines(), result.stdout

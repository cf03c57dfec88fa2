import shutil
import subprocess
import sys

from safetensors.torch import load_file, save_file

from tests.conftest import TINY


def run(directory):
    command = [sys.executable, "-m", "pipeline.parity", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_every_golden_key_is_reproduced(golden):
    result = run(TINY)
    assert result.returncode == 0, result.stdout + result.stderr
    *lines, summary = result.stdout.splitlines()
    assert [line.split()[1] for line in lines] == sorted(golden)
    assert summary == f"{len(golden)} of {len(golden)} keys reproduced"


def test_a_miss_and_an_unknown_key_are_named_and_fail(tmp_path):
    shutil.copytree(TINY, tmp_path / "model")
    file = tmp_path / "model" / "golden.safetensors"
    golden = load_file(file)
    golden["codec.short.audio"] = golden["codec.short.audio"] + 1e-3
    golden["depth.surprise"] = golden["depth.codes"].clone()
    file.unlink()
    save_file(golden, file)
    result = run(tmp_path / "model")
    assert result.returncode == 1
    assert [line.split()[1] for line in result.stdout.splitlines() if line.startswith("MISS")] == [
        "codec.short.audio",
        "depth.surprise",
    ]

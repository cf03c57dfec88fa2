from pathlib import Path

import pytest
import torch

FIXTURES = Path(__file__).parent / "fixtures"
TINY = FIXTURES / "moss_local_tiny"

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def golden():
    """Arrays made by the model authors' own inference code; keys are described in fixtures/README.md."""
    from safetensors.torch import load_file

    return load_file(TINY / "golden.safetensors")

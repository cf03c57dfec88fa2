import pytest
import torch

from pipeline.backbone import load_backbone
from pipeline.config import ModelConfig
from pipeline.depth import load_depth
from pipeline.tokenizer import Tokenizer
from tests.conftest import TINY


@pytest.fixture(scope="session")
def config():
    return ModelConfig.load(TINY / "tts")


@pytest.fixture(scope="session")
def tokenizer(config):
    return Tokenizer.load(TINY / "tts", config)


@pytest.fixture(scope="session")
def backbone(config):
    return load_backbone(TINY / "tts", config, dtype=torch.float32)


@pytest.fixture(scope="session")
def depth(config):
    return load_depth(TINY / "tts", config, dtype=torch.float32)

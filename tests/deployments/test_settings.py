import pytest
import torch

from deployments.settings import ConfigError, Settings
from tests.deployments.conftest import ROOT

MINIMAL = "model: {tts: t, codec: c}\n"


def load(tmp_path, text):
    file = tmp_path / "model.yaml"
    file.write_text(text)
    return Settings.load(file)


@pytest.mark.parametrize("file", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_configuration_is_valid(file):
    settings = Settings.load(file)
    assert settings.drain_seconds * 12.5 > settings.http.max_frames
    for section in (settings.backbone, settings.depth, settings.codec):
        assert {"min_replicas", "max_replicas"} <= section.autoscaling.keys()


def test_paths_start_at_the_file(tmp_path):
    assert load(tmp_path, MINIMAL).model.tts == tmp_path / "t"


def test_a_device_becomes_what_ray_calls_it(tmp_path):
    settings = load(
        tmp_path,
        MINIMAL
        + "backbone: {device: npu, cpus: 2, dtype: bfloat16}\n"
        + "depth: {device: cuda, device_share: 0.25}\ncodec: {cpus: 1}\n",
    )
    assert settings.backbone.actor_options == {"num_cpus": 2, "resources": {"NPU": 1.0}}
    assert settings.backbone.torch_dtype == torch.bfloat16
    assert settings.depth.actor_options == {"num_cpus": 0.1, "resources": {}, "num_gpus": 0.25}
    assert settings.codec.actor_options == {"num_cpus": 1, "resources": {}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {tts: t}\n", "model.codec: Field required"),
        (MINIMAL + "backbone: {devcie: cpu}\n", "backbone.devcie: Extra inputs are not permitted"),
        (
            MINIMAL + "depth: {max_rows: 8}\n",
            r"backbone.max_running 64 makes steps of 32 rows, more than depth.max_rows \(8\)",
        ),
        (MINIMAL + "codec: {device: tpu}\n", "codec.device: Input should be 'cpu', 'cuda' or 'npu'"),
        ("model: [\n", "is not valid YAML"),
        ("", "valid dictionary"),
    ],
)
def test_a_wrong_configuration_names_the_file_and_the_field(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message) as error:
        load(tmp_path, text)
    assert "model.yaml" in str(error.value)


def test_a_missing_configuration_is_told(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        Settings.load(tmp_path / "none.yaml")

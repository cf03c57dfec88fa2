"""Whatever the OpenAPI schema allows, and whatever it forbids, is answered as the schema says."""

import os

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "6"))


def left_out(operation):
    """What a schema cannot say: that a text holds something to say. And a batch answers each request by itself."""
    batch = operation.path == "/v1/audio/speech/batch"
    return [positive_data_acceptance, *([negative_data_rejection] if batch else [])]


@pytest.fixture(scope="module")
def operations(server):
    schema = schemathesis.openapi.from_url(f"{server}/openapi.json")
    return [result.ok() for result in schema.get_all_operations()]


def fuzz(operation, mode):
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def answer(case):
        case.call_and_validate(timeout=60, excluded_checks=left_out(operation))

    answer()


def test_what_the_schema_allows_is_answered_as_it_says(operations):
    for operation in operations:
        fuzz(operation, GenerationMode.POSITIVE)


def test_what_the_schema_forbids_is_refused_as_it_says(operations):
    for operation in operations:
        if operation.body:
            fuzz(operation, GenerationMode.NEGATIVE)

"""Warm-up records: the messages declared here against those of tensorflow-serving-api."""

import pytest

from keras_attn.serving.export.prediction_log import decode, encode

INPUTS = {
    "translate": {"text": ["ein Hund", "", "é😀" * 99]},
    "translate_token_ids": {"token_ids": [[5, 7, 3], [11, 3, 0]], "lengths": [3, 2]},
}


@pytest.fixture(scope="module")
def tensors():
    tf = pytest.importorskip("tensorflow")
    return {
        signature: {name: tf.make_tensor_proto(values) for name, values in inputs.items()}
        for signature, inputs in INPUTS.items()
    }


@pytest.mark.parametrize("signature", INPUTS)
def test_records_are_tensorflow_servings(tensors, signature):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    theirs = logs.PredictionLog()
    request = theirs.predict_log.request
    request.model_spec.signature_name = signature
    for name, tensor in tensors[signature].items():
        request.inputs[name].CopyFrom(tensor)
    ours = encode(signature, {name: tensor.SerializeToString() for name, tensor in tensors[signature].items()})
    assert logs.PredictionLog.FromString(ours) == theirs
    name, inputs = decode(theirs.SerializeToString())
    assert name == signature
    assert {key: type(tensors[signature][key]).FromString(value) for key, value in inputs.items()} == tensors[signature]


def test_what_an_export_does_not_write_is_skipped():
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    theirs = logs.PredictionLog()
    theirs.log_metadata.sampling_config.sampling_rate = 0.5
    theirs.predict_log.request.model_spec.name = "m"
    theirs.predict_log.request.output_filter.append("score")
    assert decode(theirs.SerializeToString()) == ("serving_default", {})

"""What stands beside a graph: the record of where it came from, and what a server and its users are told."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_attn.serving.export.options import Options
from keras_attn.translator import Translator

RECORD = "keras_attn.json"  # in assets.extra/, which servers leave alone but for their warm-up records
# What of a run's report says where the weights come from, and how good they are.
REPORTED = ("recipe", "corpus", "command", "seed", "epochs", "backend", "beam_size", "test_sentences")
MOST_JOINED = 64  # sentences that a server joins; the graph cuts them into chunks of like length
SCORES = ("bleu", "greedy_bleu", "chrf", "ter")


def write_record(directory: Path, translator: Translator, options: Options, report: Mapping[str, Any]) -> None:
    """Writes `assets.extra/keras_attn.json` of a version."""
    import keras_attn

    tokenizers = {"source": translator.source_tokenizer, "target": translator.target_tokenizer}
    record = {
        "format": "keras_attn.serving",
        "version": 2,
        "model": type(translator.model).__name__,
        "parameters": translator.model.count_params(),
        "languages": {side: report.get(side) for side in tokenizers},
        "run": {name: report[name] for name in REPORTED if name in report},
        "scores": {name: report[name] for name in SCORES if name in report},
        "options": dataclasses.asdict(options),
        "max_length_ratio": translator.max_length_ratio,
        "max_length_constant": translator.max_length_constant,
        "tokenizers": {
            side: {"level": t.level, "lowercase": t.lowercase, "size": t.vocabulary_size, "sha256": t.fingerprint}
            for side, t in tokenizers.items()
        },
        "signatures": signatures(directory),
        "versions": {m.__name__: m.__version__ for m in (keras_attn, keras, tf)},
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    (directory / "assets.extra" / RECORD).write_text(text, encoding="utf-8")


def signatures(directory: Path) -> dict[str, dict]:
    """Each signature of a SavedModel: its inputs, outputs and defaults, axes of any size as None."""
    saved_model = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())

    def side(tensors) -> dict:
        return {
            name: {
                "dtype": tf.as_dtype(tensors[name].dtype).name,
                "shape": [None if dim.size < 0 else dim.size for dim in tensors[name].tensor_shape.dim],
            }
            for name in sorted(tensors)
        }

    found = {}
    for name, signature in sorted(saved_model.meta_graphs[0].signature_def.items()):
        if name.startswith("__"):  # the loader's own, for initialisation
            continue
        found[name] = {"inputs": side(signature.inputs), "outputs": side(signature.outputs)}
        if signature.defaults:
            defaults = sorted(signature.defaults.items())
            found[name]["defaults"] = {key: tf.make_ndarray(value).item() for key, value in defaults}
    return found


def write_batching(directory: Path) -> None:
    """Writes `batching_params.pbtxt` of a version, for `--enable_per_model_batching_parameters`."""
    threads = os.cpu_count() or 1
    text = (
        f"max_batch_size {{ value: {MOST_JOINED} }}\n"
        "batch_timeout_micros { value: 2000 }\n"
        f"num_batch_threads {{ value: {threads} }}\n"
        f"max_enqueued_batches {{ value: {64 * threads} }}\n"
        "pad_variable_length_inputs: true\n"
    )
    (directory / "batching_params.pbtxt").write_text(text)


def write_guides(directory: Path) -> list[Path]:
    """Writes `models.config` and `README.md` of a model's folder where there are none; returns what it wrote."""
    written = []
    for path, template in ((directory / "models.config", CONFIG), (directory / "README.md", README)):
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(template.replace("NAME", directory.name))
        except FileExistsError:  # the user's own by now, or another export's
            continue
        written.append(path)
    return written


CONFIG = """\
model_config_list {
  config { name: "NAME" base_path: "/models/NAME" model_platform: "tensorflow" }
}
"""

README = """\
# NAME, for TensorFlow Serving

```
docker run --rm -p 8500:8500 -p 8501:8501 -v "$PWD:/models/NAME" tensorflow/serving \\
  --model_config_file=/models/NAME/models.config
curl -d '{"instances": ["ein Hund", "ein Haus"]}' localhost:8501/v1/models/NAME:predict
curl localhost:8501/v1/models/NAME/metadata
```

Run it in this folder. Each integer below it is a version; `assets.extra/keras_attn.json` in a version's folder says
what it was made from and lists its signatures with their shapes. `models.config` is for this folder alone; with more
models, list them in one.

| signature | in | out |
|---|---|---|
| `serving_default`, `translate` | `text (B,)` string | `translation (B,)` string, `score (B,)` |
| `translate_n_best` | `text (B,)` | `translations (B, K)`, `scores (B, K)`, `source_tokens (B, S)`, \
`source_lengths (B,)`, `target_tokens (B, K, T)`, `target_lengths (B, K)`, `alignments (B, K, T, S)` |
| `translate_with_options` | `text (B,)` and, each optional, `length_penalty`, `max_length`, `max_length_ratio`, \
`min_length`, `min_length_ratio` `()` | as `translate` |
| `translate_token_ids` | `token_ids (B, S)` int32, `lengths (B,)` int32 | `token_ids (B, T)`, `lengths (B,)`, \
`score (B,)` |
| `score` | `source (B,)`, `target (B,)` strings | `log_prob (B,)`, `lengths (B,)` |

- Text is any bytes; what is not UTF-8 becomes U+FFFD. Blank text gives an empty translation, score 0 and lengths 0.
- `score` of a translation is its log-probability after the length penalty, `log_prob` before it. Lengths count the
  end token, which closes tokens and ids. Padding is `""` and 0.
- Ids that the vocabulary lacks are read as unknown; pad, start and end ids are passed over; the end is put after them.
- In `translate_with_options` a 0 for a length or a ratio says nothing, and a maximum or a minimum that is not given is
  the export's. Numbers cannot be batched: with `--enable_batching` a server refuses this signature, and only this one.
- A long line among the lines of one `translate_n_best` request makes the padded answer large: send few at once.

Another signature over REST, and the same over gRPC (`pip install tensorflow-serving-api`):

```
curl -d '{"signature_name": "translate_with_options", "inputs": {"text": ["ein Hund"], "max_length": 7}}' \\
  localhost:8501/v1/models/NAME:predict
```

```python
import grpc, tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

request = predict_pb2.PredictRequest()
request.model_spec.name = "NAME"
request.inputs["text"].CopyFrom(tf.make_tensor_proto(["ein Hund", "ein Haus"]))
stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel("localhost:8500"))
answer = stub.Predict(request, timeout=10).outputs
print([text.decode() for text in tf.make_ndarray(answer["translation"])])
```

The server joins requests into batches with `--enable_batching --enable_per_model_batching_parameters`, by the
`batching_params.pbtxt` of each version.
"""

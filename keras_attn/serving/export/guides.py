"""The files in a model's folder that explain how to serve it: `models.config` and `README.md`."""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from keras_attn import files
from keras_attn.text import BLANKS, Tokenizer

LENGTH = 30  # characters of a good example sentence


def write_guides(
    directory: Path, sentences: Sequence[str], tokenizer: Tokenizer, jit_compile: bool = False
) -> list[Path]:
    """Writes `models.config` and `README.md` into a model's folder, unless they exist; returns the files it wrote.

    Args:
        directory: The model's folder, whose name becomes the model's.
        sentences: Source text, from which the README takes its examples.
        tokenizer: The source tokenizer. Without sentences, the examples are made of tokens of its vocabulary.
        jit_compile: Whether the server has to allow XLA.
    """
    first, second = example_sentences(sentences, tokenizer)
    with_options = {"signature_name": "translate_with_options", "inputs": {"text": [first], "max_length": 7}}
    words = {
        "NAME": directory.name,
        "INSTANCES": _shell({"instances": [first, second]}),
        "WITH_OPTIONS": _shell(with_options),
        "FLAGS": " --xla_cpu_compilation_enabled" if jit_compile else "",
        "SENTENCES": _json([first, second]),  # a list of strings in JSON is one in Python
    }
    written = []
    for path, template in ((directory / "models.config", CONFIG), (directory / "README.md", README)):
        if path.exists():  # written by the user or by another export
            continue
        with files.replacing(path) as partial:
            partial.write_text(re.sub("|".join(words), lambda match: words[match[0]], template), encoding="utf-8")
        written.append(path)
    return written


def example_sentences(sentences: Sequence[str], tokenizer: Tokenizer) -> tuple[str, str]:
    """Two source sentences of moderate length; if there are no real ones, words of the vocabulary."""
    real = dict.fromkeys(sentence.strip(BLANKS) for sentence in sentences)
    candidates = sorted(filter(None, real), key=lambda sentence: abs(len(sentence) - LENGTH))
    if not candidates:
        ids = tokenizer.special_ids.ordinary(tokenizer.vocabulary_size)
        letters = [i for i, token in zip(ids, tokenizer.tokens(ids), strict=True) if token.strip("\u2581").isalpha()]
        texts = [tokenizer.decode(some).strip(BLANKS) for some in (letters[:3], letters[3:6])]
        candidates = [text for text in texts if text] or ["a"]
    return candidates[0], candidates[-1] if len(candidates) == 1 else candidates[1]


def _json(value) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        text = json.dumps(value)
    return text


def _shell(value) -> str:
    """JSON as one word of a POSIX shell."""
    return shlex.quote(_json(value))


CONFIG = """\
model_config_list {
  config { name: "NAME" base_path: "/models/NAME" model_platform: "tensorflow" }
}
"""

README = """\
# NAME, for TensorFlow Serving

```
docker run --rm -d --name NAME -p 8500:8500 -p 8501:8501 -v "$PWD:/models/NAME" tensorflow/serving \\
  --model_config_file=/models/NAME/models.configFLAGS
curl -d INSTANCES localhost:8501/v1/models/NAME:predict
curl localhost:8501/v1/models/NAME/metadata
```

Run these commands in this folder. `docker logs NAME` says when the model is loaded, `docker stop NAME` ends the server.
Each folder with an integer for its name is a version. Its
`assets.extra/keras_attn.json` records what it was made from and the ids of the special tokens, and lists the signatures
with their shapes. `models.config` is for this folder alone; to serve several models, list them all in one file.

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

- Text may be any bytes; bytes that are not UTF-8 become U+FFFD. Blank text gives an empty translation with score 0 and
  lengths 0.
- The `score` of a translation is its log-probability after the length penalty, `log_prob` is the log-probability
  without it. If the model has a shortlist (`shortlist` in `assets.extra/keras_attn.json` is not null), the first is
  among a sentence's target tokens, the second always among the whole vocabulary. Lengths count the end token, which is
  the last of the tokens and ids. Padding is `""` and 0.
- Ids outside the vocabulary are read as unknown. Pad, start and end ids in a request are ignored; the graph adds the
  end id itself.
- In `translate_with_options` an input that is omitted has the value of the export. 0 for a length or a ratio means no
  such limit; without any, outputs are as long as the translator alone would make them. Numbers cannot be batched: a
  server with `--enable_batching` refuses this signature, and only this one.
- In `translate_n_best`, the longest line of a request sets the size of the padded answer: send few lines at once if one
  is long.

Another signature over REST, and translation over gRPC (`pip install tensorflow-serving-api`):

```
curl -d WITH_OPTIONS localhost:8501/v1/models/NAME:predict
```

```python
import grpc, tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

request = predict_pb2.PredictRequest()
request.model_spec.name = "NAME"
request.inputs["text"].CopyFrom(tf.make_tensor_proto(SENTENCES))
stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel("localhost:8500"))
answer = stub.Predict(request, timeout=10).outputs
print([text.decode() for text in tf.make_ndarray(answer["translation"])])
```

With `--enable_batching --enable_per_model_batching_parameters` the server joins requests into batches, as the
`batching_params.pbtxt` of each version says. With `--tensorflow_intra_op_parallelism=1` each operation has one thread:
where sentences come one at a time, above all beside other work on the cores, that was faster.

A version whose `assets.extra/keras_attn.json` has `"jit_compile": true` is compiled by XLA. A server loads it if it was
started with `--xla_cpu_compilation_enabled`, and compiles when it runs the warm-up records.
"""

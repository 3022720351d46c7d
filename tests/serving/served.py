"""A hand-made model with the signatures of an exported translator, and a `keras-attn serve` process for it.

It translates a text to its upper case. `translate_n_best` gives two hypotheses: the words in reverse order, where word
j has 3/4 of its attention on word S-2-j (the last token is the end), and the text itself.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HALF_A_SECOND = "75000"  # iterations of `slow`


class Served(NamedTuple):
    process: subprocess.Popen
    name: str
    rest: str


def save(directory: Path, prefix: str = "") -> Path:
    """Writes a version; every translation of `serving_default` starts with `prefix`."""
    import tensorflow as tf

    text = tf.TensorSpec((None,), tf.string, name="text")
    number = tf.TensorSpec((), tf.float32, name="length_penalty")

    def translate(text):
        return {"translation": prefix + tf.strings.upper(text), "score": -tf.cast(tf.strings.length(text), "float32")}

    def slow(text):
        rounds = tf.reduce_max(tf.strings.to_number(text, tf.int32))
        ran = tf.while_loop(lambda n: n < rounds, lambda n: [n + 1], [0])
        return {"text": tf.where(tf.fill(tf.shape(text), ran[0] >= 0), text, "")}

    def with_options(text, length_penalty):
        return {"score": length_penalty * tf.cast(tf.strings.length(text), "float32")}

    def token_ids(token_ids, lengths):
        return {"token_ids": token_ids[:, ::-1], "lengths": lengths}

    def score(source, target):
        lengths = tf.strings.length(source) + 2 * tf.strings.length(target)
        return {"log_prob": -tf.cast(lengths, "float32"), "lengths": tf.strings.length(target)}

    ids = tf.TensorSpec((None, None), tf.int32, name="token_ids"), tf.TensorSpec((None,), tf.int32, name="lengths")
    pair = [tf.TensorSpec((None,), tf.string, name=name) for name in ("source", "target")]
    specs = {
        "serving_default": (translate, [text]),
        "translate_n_best": (_n_best, [text]),
        "translate_with_options": (with_options, [text, number]),
        "translate_token_ids": (token_ids, ids),
        "score": (score, pair),
        "slow": (slow, [text]),
    }
    signatures = {
        name: tf.function(function, input_signature=list(inputs), autograph=False)
        for name, (function, inputs) in specs.items()
    }
    tf.saved_model.save(tf.Module(), str(directory), signatures=signatures)
    _default(directory / "saved_model.pb", "translate_with_options", "length_penalty", 0.5)
    return directory


def _n_best(text):
    import tensorflow as tf

    words = tf.strings.split(text)  # (B, (S - 1))
    end = tf.fill((tf.size(text), 1), "</s>")
    source, reverse = tf.concat([words, end], 1), tf.concat([words[:, ::-1], end], 1)
    lengths = tf.cast(source.row_lengths(), "int32")  # (B,)
    source, reverse = source.to_tensor(), reverse.to_tensor()  # (B, S)
    length = tf.shape(source)[1]
    place = tf.range(length)[None]  # (1, S)
    is_end, real = place == lengths[:, None] - 1, place < lengths[:, None]
    across = tf.where(is_end, place, lengths[:, None] - 2 - place)  # (B, S)
    own = [tf.one_hot(of, length) for of in (across, tf.tile(place, (tf.size(text), 1)))]
    to_end = tf.cast(is_end, "float32")[:, None]  # (B, 1, S)
    alignments = tf.stack([0.75 * weights + 0.25 * to_end for weights in own], 1)  # (B, K, T, S)
    return {
        "translations": tf.stack([tf.strings.reduce_join(words[:, ::-1], 1, separator=" "), text], 1),
        "scores": tf.tile([[-0.5, -1.5]], (tf.size(text), 1)),
        "source_tokens": source,
        "source_lengths": lengths,
        "target_tokens": tf.stack([reverse, source], 1),
        "target_lengths": tf.stack([lengths, lengths], 1),
        "alignments": tf.where(real[:, None, :, None], alignments, 0.0),
    }


def _default(path: Path, signature: str, name: str, value: float) -> None:
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    content = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    defaults = content.meta_graphs[0].signature_def[signature].defaults
    defaults[name].CopyFrom(tf.make_tensor_proto(value, tf.float32))
    path.write_bytes(content.SerializeToString())


@contextlib.contextmanager
def serving(directory: Path, *flags: str) -> Iterator[Served]:
    """Starts `keras-attn serve` on free ports, yields when it accepts requests, and kills it at the end."""
    command = [sys.executable, "-m", "keras_attn", "serve", str(directory), "--port", "0", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}, **pipes) as process:
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if ready := re.match(r"(\S+) is served on (http://\S+) ", line):
                    break
            else:
                raise AssertionError("".join(lines))
            yield Served(process, *ready.groups())
        finally:
            process.kill()

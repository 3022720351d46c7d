"""Validation refuses, with a sentence, each thing that a stock server cannot serve."""

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the graph is written and checked by the TensorFlow backend", allow_module_level=True)

import tensorflow as tf

from keras_attn.serving.export import validation

TEXT = tf.TensorSpec((None,), tf.string, name="text")
WEIGHTS = 4 * 300_000


class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(tf.random.stateless_uniform((300_000,), (1, 2)))

    def score(self, text):
        return self.weights[0] * tf.cast(tf.strings.length(text), tf.float32)


class Compiled(Module):
    def __init__(self):
        super().__init__()
        self.inner = tf.function(lambda x: x * self.weights[0], jit_compile=True)

    def score(self, text):
        return self.inner(tf.cast(tf.strings.length(text), tf.float32))


class Python(Module):
    def score(self, text):
        return tf.numpy_function(lambda t: self.weights.numpy()[0], [text], tf.float32)[None] * tf.ones(tf.shape(text))


class Mutable(Module):
    def __init__(self):
        super().__init__()
        self.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)

    def score(self, text):
        return super().score(text) + self.table.lookup(text)


class Twice(Module):
    def __init__(self):
        super().__init__()
        self.copy = tf.Variable(self.weights)


class Baked(Module):
    def __init__(self):
        super().__init__()
        self.constant = tf.random.stateless_uniform((800_000,), (3, 4)).numpy()

    def score(self, text):
        return super().score(text) + tf.gather(tf.constant(self.constant), tf.strings.length(text))


class Scalar(Module):
    def score(self, text):
        return tf.reduce_sum(super().score(text))


class Static(Module):
    spec = tf.TensorSpec((2,), tf.string, name="text")


def save(module, folder, name="serving_default"):
    spec = getattr(module, "spec", TEXT)
    function = tf.function(lambda text: {"score": module.score(text)}, input_signature=[spec], autograph=False)
    module.function = function.get_concrete_function()
    tf.saved_model.save(module, str(folder), signatures={name: module.function})
    return folder


def test_what_a_server_can_serve_passes(tmp_path):
    validation.validate(save(Module(), tmp_path / "m"), WEIGHTS, 0)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Compiled, "XLA-compiled code"),
        (Python, "calls to Python"),
        (Mutable, "tables that change"),
        (Twice, "stored more than once"),
        (Baked, "bytes, more than"),
        (Scalar, "score of its signature serving_default has no free batch axis"),
        (Static, "text of its signature serving_default has no free batch axis"),
    ],
)
def test_what_it_cannot_serve_is_refused(tmp_path, module, message):
    folder = save(module(), tmp_path / "m")
    with pytest.raises(ValueError, match=f"Expected a SavedModel.*{message}"):
        validation.validate(folder, WEIGHTS, 0)


def test_ops_of_other_libraries_are_refused(tmp_path):
    import tensorflow_text

    class Foreign(Module):
        def score(self, text):
            return super().score(text) + tf.cast(
                tensorflow_text.WhitespaceTokenizer().split(text).row_lengths(), "float32"
            )

    folder = save(Foreign(), tmp_path / "m")
    with pytest.raises(ValueError, match=r"does not link: .*Whitespace"):
        validation.validate(folder, WEIGHTS, 0)


@pytest.mark.parametrize(
    ("name", "default", "passes"),
    [("translate_with_options", True, True), ("translate_with_options", False, False), ("translate", True, False)],
)
def test_numbers_for_a_whole_request_are_for_one_signature_with_defaults(tmp_path, name, default, passes):
    module, two = Module(), tf.constant(2.0)

    def score(text, number=two):
        return {"score": module.score(text) * number}

    specs = [TEXT, tf.TensorSpec((), tf.float32, name="number")]
    function = tf.function(score, input_signature=specs, autograph=False)
    module.function = function if default else function.get_concrete_function()
    plain = tf.function(lambda text: {"score": module.score(text)}, input_signature=[TEXT], autograph=False)
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": plain, name: module.function})
    if passes:
        validation.validate(tmp_path, WEIGHTS, 0)
    else:
        with pytest.raises(ValueError, match=f"number of its signature {name} has no free batch axis"):
            validation.validate(tmp_path, WEIGHTS, 0)


def test_the_default_signature_must_be_there(tmp_path):
    with pytest.raises(ValueError, match="no signature serving_default"):
        validation.validate(save(Module(), tmp_path / "m", "other"), WEIGHTS, 0)

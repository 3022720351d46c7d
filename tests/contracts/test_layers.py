"""The contract of layers: properties that each row of `layer_rows` has, on each backend.

Each layer is built once in float64 and run once, with everything that the tests read, in one compiled program on JAX.
"""

import contextlib
import functools
import inspect
import json
import re
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn.backend import all_layers
from keras_attn.layers.layer import Layer, WeightLayer, constructor_arguments, keras_layer_arguments
from tests.contracts.layer_rows import LENGTH, MASK, ROWS, B, S, T, V
from tests.gradients import differentiated, wide

TARGET = np.arange(T) < np.array([[T], [2], [1], [T]])  # (B, T)
APART = (ka.layers.Attention, ka.layers.ScheduledSampler)  # a base; booleans, see tests/layers/test_steps.py
OF_LOGS = (ka.layers.HardAlignment, ka.PointerGenerator)  # whose outputs are logarithms, of 0 too
PENALTIES = {"regularizer": "l2", "constraint": "non_neg"}
every_row = pytest.mark.parametrize("name", ROWS)


def rows_with(condition):
    return pytest.mark.parametrize("name", [name for name, row in ROWS.items() if condition(row)])


@contextlib.contextmanager
def policy(name):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    yield
    keras.config.set_dtype_policy(before)


def make(name, dtype=None, /, **arguments):
    """A layer whose dtype its argument alone says; the policy is that of the layers that it is given."""
    row = ROWS[name]
    with policy(dtype or "float32"):
        given = row.arguments()
    return row.cls(**given, **{"dtype": dtype, **arguments})


def arrays_of(name, dtype="float64"):
    random = np.random.default_rng(5)
    arrays = {}
    for key, shape in ROWS[name].inputs.items():
        if key.endswith("token_ids"):
            arrays[key] = random.integers(V - S, V + 2, (B, *shape)).astype("int32")
            arrays[key] = np.minimum(arrays[key], V - 1) if name.startswith("hard") else arrays[key]
            arrays[key][0] = np.minimum(arrays[key][0], V - 1)  # a temporary id is that of a place, padding or not
        elif key.startswith("align"):
            arrays[key] = random.dirichlet(np.ones(shape[-1]), (B, *shape[:-1])).astype(dtype)
        else:
            arrays[key] = random.normal(size=(B, *shape)).astype(dtype)
    return arrays


def masked(name):
    return {"mask": MASK} if ROWS[name].masked else {}


def build(name, layer, arrays):
    """Builds a layer, and gives its weights random numbers: zeros and ones would hide mistakes."""
    symbols = {
        k: keras.KerasTensor(x.shape, "int32" if x.dtype == "int32" else layer.compute_dtype) for k, x in arrays.items()
    }
    layer(*symbols.values())
    random = np.random.default_rng(3)
    for weight in layer.weights:
        if "float" in weight.dtype and 0 not in tuple(weight.shape):
            weight.assign(random.normal(size=weight.shape, scale=0.5))
    return layer


class Given(keras.layers.Layer):
    """Gives its inputs a mask, as an embedding does."""

    def __init__(self, mask):
        super().__init__(dtype="float64", autocast=False)
        self.mask = mask

    def call(self, x):
        return x + 0

    def compute_mask(self, inputs, previous_mask=None):
        return self.mask


class Seen(keras.layers.Layer):
    """Returns the mask that Keras gives to the next layer."""

    def __init__(self):
        super().__init__(dtype="float64", autocast=False)
        self.supports_masking = True

    def call(self, x, mask=None):
        return ops.zeros(1) if mask is None else ops.cast(mask, "int32")


def along_source(x, change):
    """Changes an array along its first axis of size S."""
    return change(x, list(x.shape).index(S))


def noisy(x, axis):
    mask = np.reshape(MASK, [B, *(S if i == axis else 1 for i in range(1, len(x.shape)))])
    return ops.where(mask, x, ops.cast(V - 2 if "int" in str(x.dtype) else 1e3, x.dtype))


def without_padding(x, axis):
    """Rows 0 and 1, which have padding at one end, without it."""
    real = (np.arange(S - LENGTH, S), np.arange(LENGTH))
    return ops.stack([ops.take(x[row], places, axis=axis - 1) for row, places in enumerate(real)])


def steps_of(row, layer, arrays, mask):
    """The layer one step at a time, the outputs side by side; and the last state."""
    first, *others = arrays.values()
    found, state = [], ()
    if row.steps == "decoder":
        (values,) = others
        memory, state = layer.memory(values, mask), layer.initial_state(values)
        for t in range(T):
            *out, state = layer.step(first[:, t], memory, state)
            found.append(out)
    elif row.steps == "attention":
        (values,) = others
        keys, state = layer.keys(values), layer.initial_state(values)
        for t in range(T):
            *out, state = layer(first[:, t], values, keys=keys, mask=mask, state=state)
            found.append(out)
    else:
        found = [[layer(*(x[:, t] for x in arrays.values()))] for t in range(T)]
    return [ops.stack(parts, axis=1) for parts in zip(*found, strict=True)], state


def in_several_ways(row, layer, given):
    """Outputs with an implicit mask, with other padding and without, step by step; the mask that is handed on."""
    mask, (first, *_) = {"mask": MASK} if row.masked else {}, given
    hidden = {k: Given(MASK)(x) if k in row.masked else x for k, x in given.items()}
    if first not in row.masked:
        hidden[first] = Given(MASK if given[first].shape[1] == S else TARGET)(hidden[first])
    found = {"implicit": keras.tree.flatten(layer(*hidden.values()))}
    found["handed on"] = Seen()(found["implicit"][0])
    if row.masked:
        # With another implicit mask, over which the explicit one wins.
        changed = {k: Given(MASK[::-1])(along_source(x, noisy)) if k in row.masked else x for k, x in given.items()}
        found["noisy"] = keras.tree.flatten(layer(*changed.values(), **mask))
        short = {k: along_source(x, without_padding) if k in row.masked else x[:2] for k, x in given.items()}
        found["alone"] = keras.tree.flatten(layer(*short.values()))
    if row.steps:
        steps, state = steps_of(row, layer, given, ops.convert_to_tensor(MASK))
        found["steps"], found["state"] = steps, keras.tree.flatten(state)
    return found


class Results(NamedTuple):
    """A layer in float64, and all that the tests compare.

    Attributes:
        arrays: The inputs.
        leaves: The inputs of floats and the weights, by which `gradients` are.
        found: Outputs in several ways, and "slope", that of the loss in one direction of the leaves.
        slope: The same from the gradients.
    """

    layer: keras.layers.Layer
    arrays: dict[str, np.ndarray]
    leaves: dict[str, np.ndarray]
    found: dict[str, Any]
    gradients: dict[str, np.ndarray]
    slope: float


@functools.cache
def results(name):
    """Builds and runs a row's layer, once for all tests."""
    row = ROWS[name]
    arrays = arrays_of(name)
    random = np.random.default_rng(11)
    with wide():
        layer = build(name, make(name, "float64"), arrays)
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
        build(name, again, arrays)
        weights = {weight.path: weight for weight in layer.trainable_weights if 0 not in tuple(weight.shape)}

        def function(leaves, several=True):
            given = {k: leaves.get(k, x) for k, x in arrays.items()}
            given = {k: ops.convert_to_tensor(x) for k, x in given.items()}
            mapping = [(weight, leaves[path]) for path, weight in weights.items()]
            copies = [weight for weight in again.trainable_weights if 0 not in tuple(weight.shape)]
            mapping += [(copy, x) for copy, (_, x) in zip(copies, mapping, strict=True)]
            with keras.StatelessScope(state_mapping=mapping):
                found = {"whole": keras.tree.flatten(layer(*given.values(), **masked(name)))}
                if several:
                    found |= in_several_ways(row, layer, given)
                    found["again"] = keras.tree.flatten(again(*given.values(), **masked(name)))
            # sigmoid, because a log-probability may be -inf
            pairs = zip(found["whole"], map(ops.convert_to_tensor, directions), strict=False)
            loss = sum(ops.sum(ops.sigmoid(x / 8) * direction) for x, direction in pairs)
            return loss, found

        symbolic = keras.tree.flatten(layer(*(keras.KerasTensor(x.shape) for x in arrays.values())))
        # An attention's state is not among them: that of a padded word is never read.
        directions = [random.normal(size=x.shape) for x in symbolic[: 2 if row.steps == "attention" else None]]
        leaves = {k: x for k, x in arrays.items() if x.dtype != "int32"}
        leaves |= {path: ops.convert_to_numpy(weight) for path, weight in weights.items()}
        differentiate = differentiated(function)
        found, gradients = differentiate(leaves)
        towards = {k: random.normal(size=x.shape) for k, x in leaves.items()}
        near = [{k: np.asarray(x + sign * 1e-6 * towards[k]) for k, x in leaves.items()} for sign in (1, -1)]
        if keras.backend.backend() == "jax":  # the program that there is
            near = [differentiate(leaves)[0]["loss"] for leaves in near]
        else:
            near = [function(keras.tree.map_structure(ops.convert_to_tensor, leaves), False)[0] for leaves in near]
        found["slope"] = float(near[0] - near[1]) / 2e-6
    slope = sum((gradients[k] * towards[k]).sum() for k in leaves)
    return Results(layer, arrays, leaves, found, gradients, slope)


def same(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def of_short_rows(outputs, alone):
    """Rows 0 and 1 without their padding: as long as the rows alone."""
    found = []
    for x, short in zip(outputs, alone, strict=True):
        rows = list(x[:2])
        for axis, kept in enumerate(short.shape[1:]):
            places = np.arange(x.shape[axis + 1])
            words = places[: V * (len(places) == V + S)]  # before the temporary ids
            ends = (places[len(places) - kept + len(words) :], places[len(words) : kept])
            rows = [np.take(row, [*words, *end], axis) for row, end in zip(rows, ends, strict=True)]
        found.append(np.stack(rows))
    return found


def test_no_public_layer_is_forgotten():
    public = {x for x in vars(ka.layers).values() if inspect.isclass(x) and issubclass(x, keras.layers.Layer)}
    given = {type(x) for row in ROWS.values() for x in keras.tree.flatten(row.arguments())}
    assert public - {row.cls for row in ROWS.values()} - given == {*APART}


@rows_with(lambda row: row.oracle)
def test_outputs_are_those_of_the_equations_in_numpy(name):
    run = results(name)
    weights = {"/".join(path.split("/")[-2:]): x for path, x in run.leaves.items()}  # of a cell, wherever it is
    weights |= {path.partition("/")[2]: x for path, x in run.leaves.items()}
    expected = ROWS[name].oracle(weights, *run.arrays.values())
    found = run.found["whole"][: len(expected)]
    if ROWS[name].cls in OF_LOGS:
        found, expected = (list(map(np.exp, logs)) for logs in (found, expected))
    same([x[: len(y)] for x, y in zip(found, expected, strict=True)], expected, ROWS[name].tolerance)
    assert np.std(np.exp(expected[-1])) > 0.02, "sharp enough for a mistake to show"


@rows_with(lambda row: row.masked)
def test_a_mask_is_the_same_explicitly_implicitly_and_as_no_padding_at_all(name):
    row, found, gradients = ROWS[name], results(name).found, results(name).gradients
    same(found["implicit"], found["whole"], 1e-12)
    alone = found["alone"]
    same(of_short_rows(found["noisy"], alone), of_short_rows(found["whole"], alone), 1e-12)
    same(of_short_rows(found["whole"], alone), alone, max(row.tolerance, 1e-9))
    if row.padding:
        number = 2 if row.steps == "attention" else None  # the state of a padded word is never read
        same(found["noisy"][:number], found["whole"][:number], 1e-12)
        for x in found["whole"][:number]:
            for axis in range(1, x.ndim):
                if x.shape[axis] == S:
                    np.testing.assert_array_equal(np.moveaxis(x, axis, 1)[~MASK], 0)
        for key in row.masked:
            np.testing.assert_array_equal(gradients[key][~MASK], 0)


@every_row
def test_the_mask_of_the_first_argument_is_handed_on(name):
    first = next(iter(results(name).arrays.values()))
    expected = ROWS[name].handed_on(MASK if first.shape[1] == S else TARGET)
    np.testing.assert_array_equal(results(name).found["handed on"], expected)


@rows_with(lambda row: row.masked)
def test_a_mask_of_another_shape_is_refused(name):
    layer, arrays = results(name).layer, results(name).arrays
    for mask in (np.array([5, 3, 3, 0]), MASK[:, :1], MASK[:1], MASK[:, :, None], MASK[:, :-1]):
        with wide(), pytest.raises(ValueError, match=r"Expected a mask of shape \(B, S\)") as error:
            layer(*arrays.values(), mask=mask)
        assert "ops.arange(S) < lengths[:, None]" in str(error.value)


@rows_with(lambda row: row.steps)
def test_one_step_at_a_time_equals_all_at_once(name):
    row, found = ROWS[name], results(name).found
    number = len(found["steps"])
    same(found["steps"], found["whole"][:number], row.tolerance)
    if row.steps == "attention":
        same(found["state"], found["whole"][number:], row.tolerance)


@every_row
def test_gradients_are_finite_reach_everything_and_are_the_slope(name):
    """With a row of the batch that has no real word."""
    row, run = ROWS[name], results(name)
    for key, gradient in run.gradients.items():
        assert np.isfinite(gradient).all(), key
    if row.smooth:
        np.testing.assert_allclose(run.found["slope"], run.slope, rtol=1e-4 if row.tolerance < 1e-6 else 0.2, atol=1e-6)
        for key, gradient in run.gradients.items():
            unread = {"embedding"} if row.cls is ka.layers.ConcatenatedOutput else {"alignments"}
            assert np.abs(gradient).max() > 0 or key in unread, key


def halved(name, dtype):
    """Outputs in half precision of the weights in float64."""
    full = results(name).layer
    layer = build(name, make(name, dtype), arrays_of(name, "float32"))
    for weight, other in zip(layer.weights, full.weights, strict=True):
        if "float" in weight.dtype:
            weight.assign(ops.convert_to_numpy(other).astype("float32"))
    arrays = arrays_of(name, "float32")

    def run(*arrays):
        return keras.tree.flatten(layer(*arrays, **masked(name)))

    if keras.backend.backend() == "jax":
        import jax

        run = jax.jit(run)
    return layer, run(*map(ops.convert_to_tensor, arrays.values()))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float16"])
@every_row
def test_a_dtype_reaches_every_part_and_scores_stay_float32(name, dtype):
    row, (layer, outputs) = ROWS[name], halved(name, dtype)
    for part in all_layers(layer):
        assert part.dtype_policy.name == dtype, part.path
    for weight in layer.weights:
        assert "float" not in weight.dtype or weight.dtype == layer.variable_dtype, weight.path
    dtypes = [keras.backend.standardize_dtype(x.dtype) for x in outputs]
    assert dtypes[0] == ("float32" if row.cls in OF_LOGS else layer.compute_dtype)
    if row.steps in ("attention", "decoder"):
        assert {*dtypes[1 if row.steps == "attention" else 2 :]} <= {"float32", "int32"}
    if row.smooth:
        for x, expected in zip(outputs, results(name).found["whole"], strict=True):
            x = ops.convert_to_numpy(ops.cast(x, "float32"))
            x, expected = (np.exp(x), np.exp(expected)) if row.cls in OF_LOGS else (x, expected)
            np.testing.assert_allclose(x, expected, atol=0.2 * max(1, np.abs(expected).max()))


@every_row
def test_arguments_are_attributes_and_the_config_makes_the_same_layer(name):
    layer = make(name, activity_regularizer="l2", autocast=False, trainable=False, name="another")
    again = type(layer).from_config(layer.get_config())
    base = keras.layers.Layer if ROWS[name].cls is ka.AttentionalLayer else Layer
    given = ROWS[name].arguments()
    for argument, parameter in constructor_arguments(ROWS[name].cls, base).items():
        value = given.get(argument, parameter.default)
        for one in (layer, again):
            kept = getattr(one, argument)
            if isinstance(value, (int, float, type(None))) and not argument.endswith("regularizer"):
                assert kept == value, argument
    assert (again.name, again.trainable) == ("another", False)
    assert again.autocast == (name == "attentional")  # Keras' own layers forget it
    assert isinstance(again.activity_regularizer, keras.regularizers.L2)
    assert again.get_config() == layer.get_config()


@rows_with(lambda row: issubclass(row.cls, WeightLayer))
def test_regularizers_and_constraints_reach_matrices_vectors_and_biases(name):
    """Those of layers within it, too, unless they were given."""
    options = {f"{part}_{kind}": one for part in ("kernel", "bias") for kind, one in PENALTIES.items()}
    layer = build(name, make(name, **options), arrays_of(name, "float32"))
    given = [x for x in keras.tree.flatten(ROWS[name].arguments()) if isinstance(x, keras.layers.Layer)]
    others = {id(weight) for x in given for weight in x.weights}
    for weight in layer.weights:
        end = weight.path.rpartition("/")[2]
        reached = end.endswith(("kernel", "vector", "bias")) and end != "recurrent_kernel" and id(weight) not in others
        assert isinstance(weight.regularizer, keras.regularizers.L2) == reached, weight.path
        assert isinstance(weight.constraint, keras.constraints.NonNeg) == reached, weight.path


@every_row
def test_an_unknown_argument_is_refused_with_the_list_of_the_valid_ones(name):
    with pytest.raises(ValueError, match=r"Expected arguments among: .* Received: embeding_dropout") as error:
        make(name, embeding_dropout=0.9)
    valid = {*re.search("among: (.*)[.] Received", str(error.value))[1].split(", ")}
    own = [n for n in inspect.signature(ROWS[name].cls.__init__).parameters if n not in ("self", "args", "kwargs")]
    assert {*own, *keras_layer_arguments()} <= valid
    for argument in valid - {*ROWS[name].arguments()}:  # every name in the list is an argument indeed
        make(name, **{argument: getattr(make(name), argument)})


@every_row
def test_symbolic_outputs_have_the_shapes_and_dtypes_of_real_ones(name):
    layer, arrays, found = results(name).layer, results(name).arrays, results(name).found
    for unknown in ((), (T, S)):
        symbols = {
            k: keras.KerasTensor([None if n in unknown else n for n in x.shape], str(x.dtype))
            for k, x in arrays.items()
        }
        with wide():
            symbolic = keras.tree.flatten(layer(*symbols.values()))
        for symbol, real in zip(symbolic, found["whole"], strict=True):
            assert symbol.dtype == str(real.dtype)
            assert all(a == b or (unknown and a is None) for a, b in zip(symbol.shape, real.shape, strict=True))
    assert all(str(x.dtype) == "float64" for x in found["whole"] if "float" in str(x.dtype))


@rows_with(lambda row: row.random)
def test_random_numbers_are_drawn_in_training_alone(name):
    layer, arrays = build(name, make(name), arrays_of(name, "float32")), arrays_of(name, "float32")
    still, again, *drawn = (
        ops.convert_to_numpy(keras.tree.flatten(layer(*arrays.values(), training=training))[0])
        for training in (False, False, True, True)
    )
    np.testing.assert_array_equal(still, again)
    assert min(np.abs(drawn[0] - drawn[1]).max(), np.abs(drawn[0] - still).max()) > 1e-4


@every_row
def test_a_layer_from_its_config_has_the_same_outputs_with_the_same_weights(name):
    found = results(name).found
    same(found["again"], found["whole"], 1e-12)


def state_of(layer):
    """Its config, and which of its weights are trained."""
    return json.dumps(layer.get_config()), [weight.trainable for weight in layer.weights]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model of all rows, a part of each frozen, and itself loaded in safe mode; all frozen, and its clone."""
    inputs, outputs = [], {}
    for number, name in enumerate(ROWS):
        arrays = arrays_of(name, "float32")
        symbols = {k: keras.Input(x.shape[1:], dtype=str(x.dtype)) for k, x in arrays.items()}
        mask = {"mask": keras.Input((S,), dtype="bool")} if ROWS[name].masked else {}
        inputs += [*symbols.values(), *mask.values()]
        layer = make(name, name=f"row_{number}")
        outputs[layer.name] = keras.tree.flatten(layer(*symbols.values(), **mask))[0]
        for part in [one for one in all_layers(layer)[1:] if one.weights][-1:]:
            part.trainable = False
    model = keras.Model(inputs, outputs)
    random = np.random.default_rng(3)
    model.set_weights([random.normal(size=w.shape) for w in model.weights])
    path = tmp_path_factory.mktemp("contract") / "model.keras"
    model.save(path)
    in_part = {layer.name: state_of(layer) for layer in model.layers if layer.name in outputs}
    model.trainable = False
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    whole = {name: state_of(model.get_layer(name)) for name in outputs}
    return model, [(keras.saving.load_model(path, safe_mode=True), in_part), (clone, whole)]


@every_row
def test_a_model_with_it_is_saved_loaded_and_cloned(name, saved):
    model, others = saved
    row = f"row_{[*ROWS].index(name)}"
    for other, states in others:
        layer, original = other.get_layer(row), model.get_layer(row)
        assert type(layer) is type(original)
        assert state_of(layer) == states[row]
        np.testing.assert_equal(layer.get_weights(), original.get_weights())

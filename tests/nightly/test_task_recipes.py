"""Each recipe of other tasks, trained for an epoch: loaded and exported, it finds the same without Keras and Python."""

import importlib
import shutil

import keras
import numpy as np
import pytest

from keras_attn.export import export_onnx, export_search
from keras_attn.models import Seq2Seq
from keras_attn.runtime import OnnxSearch
from recipes.tasks.task import Task
from tests.export.small import NEEDS_TENSORFLOW
from tests.serving import loader
from tests.unit.recipes.test_tasks import TASKS

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason=NEEDS_TENSORFLOW),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the C program"),
    pytest.mark.filterwarnings("ignore:In the future `np.object`:FutureWarning"),  # of Keras' patch of tf2onnx
]
ITEMS = {"forecasting": 1800, "classification": 100}  # of which some are left for the test
OPTIONS = {"max_length": 8, "beam_size": 3}
ROWS = 3


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return loader.build(tmp_path_factory.mktemp("loader"))


def trained(name, folder, monkeypatch):
    """The files of the recipe's models, and what each was trained with."""
    fit, files = Task.fit, {}

    def noted(task, model, x, *labels, name="model", **options):
        files[folder / f"{name.replace(' ', '-')}.keras"] = x
        fit(task, model, x, *labels, name=name, **options)

    monkeypatch.setattr(Task, "fit", noted)
    items = str(ITEMS.get(name, 64))
    module = importlib.import_module(f"recipes.tasks.{name}")
    try:
        module.main(["--epochs", "1", "--items", items, "--out", str(folder)])
    except ModuleNotFoundError as error:  # of a package with data
        pytest.skip(str(error))
    return files


def in_c(program, folder, arrays):
    """The outputs of the signature `serving_default`, for arrays in the order of their names."""
    fed = [f"{x.ndim} {' '.join(map(str, x.shape))}\n".encode() + x.tobytes() for x in arrays]
    done, results = loader.run(program, folder, fed, "--signature", "serving_default")
    assert done.returncode == 0, done.stderr
    return results["serving_default"]


def check_search(program, model, source, folder):
    """The best ids of a beam search: as `generate` finds them, in the C loader and in the ONNX runtime."""
    expected = model.generate(source, **OPTIONS)
    arrays = {name: np.asarray(x) for name, x in model.source_arrays(source).items()}
    found = in_c(
        program, export_search(model, folder / "saved_model", source, **OPTIONS), dict(sorted(arrays.items())).values()
    )
    width = found["token_ids"].shape[1]
    np.testing.assert_array_equal(found["token_ids"], expected.token_ids[:, 0, :width])
    np.testing.assert_allclose(found["score"], expected.scores[:, 0], atol=1e-4)
    found = OnnxSearch(export_onnx(model, folder / "onnx", source)).generate(arrays, **OPTIONS)
    width = found.token_ids.shape[2]
    np.testing.assert_array_equal(found.token_ids, expected.token_ids[:, :, :width])
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)


def check_outputs(program, model, arrays, folder):
    """A model without a search: Keras' own exports compute the same."""
    import onnxruntime

    expected = model.predict(arrays, verbose=0)
    model.export(folder / "saved_model", verbose=False)
    (found,) = in_c(program, folder / "saved_model", keras.tree.flatten(arrays)).values()
    np.testing.assert_allclose(found, expected, atol=1e-4)
    model.export(folder / "model.onnx", format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    names = [one.name for one in session.get_inputs()]
    (found,) = session.run(None, dict(zip(names, keras.tree.flatten(arrays), strict=True)))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("name", TASKS)
def test_a_trained_recipe_is_loaded_and_exported(name, program, tmp_path, monkeypatch):
    for path, trained_with in trained(name, tmp_path, monkeypatch).items():
        model = keras.saving.load_model(path)
        folder = path.with_suffix("")
        if isinstance(model, Seq2Seq):
            source = keras.tree.map_structure(lambda x: x[:ROWS], model.source_of(trained_with[0][0]))
            check_search(program, model, source, folder)
        else:
            arrays = keras.tree.map_structure(lambda x: x[:ROWS], trained_with)
            check_outputs(program, model, arrays, folder)

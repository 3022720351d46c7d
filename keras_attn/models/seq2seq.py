"""The contract of a model, `Seq2Seq`: teacher-forced logits for training, and one step at a time for search.

Below it: checks of ids and losses, the loss of guided alignment, and frozen and quantized layers in a config.
"""

import contextlib
import copy
import inspect
import itertools
from collections.abc import Callable, Collection, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from keras_attn.backend import (
    all_layers,
    build_optimizer,
    clipping_replicas,
    dense_gradients,
    keep_values,
    replica_count,
    scan,
    sum_over_replicas,
    training_products,
)
from keras_attn.layers import check_size, refuse_unknown_arguments, single_array
from keras_attn.models.search_models import CompiledSearches, search_in_batches
from keras_attn.search import (
    SampleOptions,
    SearchOptions,
    SearchResult,
    banned_ids,
    beam_search,
    cast_input,
    check_in_vocabulary,
    greedy_search,
    limits_of_rows,
    sample,
)
from keras_attn.text import DEFAULT_IDS, SpecialIds

keras.saving.register_keras_serializable(package="keras_attn")(SpecialIds)  # here: `text` does without Keras

INPUTS = SOURCE_IDS, TARGET_IDS = ("encoder_token_ids", "decoder_token_ids")
MODEL_ARGUMENTS = ("name", "trainable", "dtype")
ALIGNMENTS = "alignments"  # the input that only a step of training takes
CHANGED_LAYERS = "changed_layers"  # in a config
ID_ARGUMENTS = ("source_special_ids", "target_special_ids", "mask_padding", "source_length")
_LEAST_ATTENTION = 1e-6  # as in Marian: a word without any has a loss of 14 nats, and no gradient
_BY_SHAPE = ("crossentropy", "ce")  # names for which Keras chooses a cross-entropy, of probabilities


class Seq2Seq(keras.Model):
    """A functional model from a source and target ids to logits that can also decode one step at a time.

        model({"encoder_token_ids": (B, S), "decoder_token_ids": (B, T)}) -> logits (B, T, V)      (teacher-forced)
        model.encode(encoder_token_ids (B, S), max_length=None) -> memory, state
        model.step(token_ids (B,), memory, state) -> logits (B, V), state, alignment (B, S)
        model.align(encoder_token_ids, decoder_token_ids) -> logits (B, T, V), alignments (B, T, S)

    The source of a model of text is `encoder_token_ids`. A subclass may have any other: the input that `source_name`
    names, or, where that is None, a dict of all inputs but `decoder_token_ids` (see `AttentionSeq2Seq`).

    `memory` is a dict that is constant for a sentence and has an entry "mask" `(B, S)`; `state` changes with every
    step. Both are nested structures of tensors with leading axis B. T calls of `step` give the logits of the
    teacher-forced call, and `align` gives the same logits with the alignments of all steps; with `each_head=True` those
    of all attention layers and heads, `(B, T, N, S)`, whose mean the others are. Search, translation, serving and plots
    use nothing else of a model, but for a search with a shortlist (`output_part`).

    `max_length` is the largest number of steps that will follow. Models whose state grows with the steps need it; with
    None they use their own limit. Recurrent models ignore it.

    Where `pointer` is True the vocabulary is that of a sentence: ids from V on are words of its source (see
    `PointerGenerator`), and V + S is the width of the logits.

    A step of training also takes "alignments" `(B, T, S)` among the inputs, rows that are zero or sum to a weight, from
    `ParallelDataset.from_text(..., links=...)`: it adds the cross-entropy of the alignments with them (Chen 2016).

    Source rows end with the end token; target inputs begin with the start token. Every model takes four arguments that
    say which ids these are, and what padding is to it:

    Args:
        inputs, outputs: The functional graph, from a dict of the two inputs to the logits.
        source_special_ids, target_special_ids: A `keras_attn.SpecialIds` for each vocabulary, that of its tokenizer.
            The default is 0 pad, 1 unknown, 2 start, 3 end. The target needs a start.
        mask_padding: Whether padding in the source is masked. False is for weights trained without a mask, as by the
            NMT tutorial of TensorFlow Addons: padding is then a word, and `source_length` says how much there is.
        source_length: The length that source rows are padded or cut to; None: rows stay as they are.
        name, trainable: As in `keras.Model`.
        dtype: Dtype policy, or its name; None is the global policy. A subclass passes it on to its layers.

    A subclass begins its constructor with `set_arguments` and ends it with `super().__init__`. Its layers must be
    attributes before the functional graph is built from them; `set_layers` sets them:

    Example:
        >>> class LastWord(keras_attn.models.Seq2Seq):
        ...     def __init__(self, source_vocabulary_size, target_vocabulary_size, *, width=5, **kwargs):
        ...         policy = self.set_arguments(locals())
        ...         embedding = keras.layers.Embedding(target_vocabulary_size, width, dtype=policy)
        ...         projection = keras.layers.Dense(target_vocabulary_size, dtype=policy)
        ...         self.set_layers(embedding=embedding, projection=projection)
        ...         inputs = keras_attn.models.token_inputs()
        ...         logits = self.projection(self.embedding(inputs["decoder_token_ids"]))
        ...         super().__init__(inputs, logits, **kwargs)
        ...
        ...     def encode(self, encoder_token_ids, max_length=None):
        ...         token_ids, mask = self.source_and_mask(encoder_token_ids)
        ...         return {"mask": mask}, ()
        ...
        ...     def step(self, token_ids, memory, state):
        ...         alignment = keras.ops.zeros_like(memory["mask"], dtype="float32")
        ...         return self.projection(self.embedding(token_ids)), state, alignment
        >>> model = LastWord(31, 37, width=7, dtype="mixed_bfloat16")
        >>> model.width, model.dtype_policy.name, model.get_config()["width"]
        (7, 'mixed_bfloat16', 7)
    """

    source_vocabulary_size: int | None = None  # of a source that is no text
    target_vocabulary_size: int | None = None  # of logits whose width depends on the source
    source_special_ids: SpecialIds = DEFAULT_IDS
    target_special_ids: SpecialIds = DEFAULT_IDS
    mask_padding: bool = True
    source_length: int | None = None
    pointer: bool = False
    quantized: bool = False  # by `keras_attn.quantize`
    source_name: str | None = SOURCE_IDS
    shared_arguments: tuple[str, ...] = ()  # which every subclass takes in `kwargs` for a parent's constructor

    def __init__(self, inputs, outputs, *, name: str | None = None, trainable: bool = True, dtype=None):
        super().__init__(inputs=inputs, outputs=outputs, name=name, trainable=trainable)
        self.dtype_policy = keras.dtype_policies.get(dtype)

    def call(self, inputs, training=None, mask=None):
        with training_products():
            return self._call(inputs, training, mask)

    def _call(self, inputs, training, mask):
        targets = inputs[ALIGNMENTS] if has_alignments(inputs) else None
        inputs = inputs if targets is None else {name: x for name, x in inputs.items() if name != ALIGNMENTS}
        # Keras builds a model of several replicas with the mean of their inputs, which is no whole number.
        if isinstance(inputs, dict) and clipping_replicas(self) == 1:
            _refuse_floats(inputs, self.input)
        if targets is None or not training:
            return super().call(inputs, training=training, mask=mask)
        self.check_attention()
        logits, alignments = self.align_in_training(inputs)
        total, count = alignment_crossentropy(alignments, targets)
        loss = ops.divide_no_nan(replica_count() * total, sum_over_replicas(count))  # as in `SmoothedCrossentropy`
        keras.layers.Layer.add_loss(self, loss)  # that of a functional model takes none
        return logits

    def check_attention(self) -> None:
        """Raises ValueError if the model has no attention that guided alignment could train."""

    def align_in_training(self, inputs) -> tuple[Any, Any]:
        """The result of `align`, with the dropout of training.

        Keras' training on JAX calls `call` itself, so that nothing else tells the layers that they train: a subclass
        whose layers differ in training passes `training=True` to them.
        """
        inputs = self.cast_inputs(inputs)
        return self.align(self.source_of(inputs), inputs[TARGET_IDS])

    def cast_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs in the dtypes of the functional graph, for a pass beside it."""
        inputs = {name: inputs[name] for name in self.input}
        return tree.map_structure(lambda x, spec: ops.cast(x, spec.dtype), inputs, self.input)

    def source_of(self, inputs: dict[str, Any]) -> Any:
        """The source among a dict of inputs, as `encode` takes it."""
        if self.source_name is not None:
            return inputs[self.source_name]
        return {name: x for name, x in inputs.items() if name not in (TARGET_IDS, ALIGNMENTS)}

    def inputs_of(self, source: Any, decoder_token_ids: Any) -> dict[str, Any]:
        """The dict of inputs of a source, as `encode` takes it, and target ids."""
        named = source if self.source_name is None else {self.source_name: source}
        return {**named, TARGET_IDS: decoder_token_ids}

    @property
    def source_names(self) -> list[str]:
        """The names of the inputs that are the source."""
        return [self.source_name] if self.source_name else [name for name in self.input if name != TARGET_IDS]

    def encode(self, source, max_length: int | None = None) -> tuple[dict[str, Any], Any]:
        raise NotImplementedError(f"{type(self).__name__} must implement `encode(source, max_length=None)`.")

    def step(self, token_ids, memory, state) -> tuple[Any, Any, Any]:
        raise NotImplementedError(f"{type(self).__name__} must implement `step(token_ids, memory, state)`.")

    def output_part(self, token_ids) -> Any:
        """The part of the projection to the vocabulary for these target ids `(n,)`, for a search with a shortlist.

        `step` takes it as a fourth argument, and returns the logits `(B, n)` of these ids.

        Raises:
            ValueError: if the model has no such projection, or copies words of the source.
        """
        raise ValueError(f"Expected a model that can search in a part of its vocabulary. Received: {self.name!r}")

    def align(self, source, decoder_token_ids, each_head: bool = False) -> tuple[Any, Any]:
        """Teacher-forced logits and alignments, by T calls of `step`; a subclass may compute them in one pass."""
        memory, state = self.encode(source)

        def step(state, token_ids):
            logits, state, alignment = self.step(token_ids, memory, state)
            return state, (logits, alignment)

        _, (logits, alignments) = scan(step, state, ops.transpose(decoder_token_ids))
        alignments = ops.transpose(alignments, (1, 0, 2))  # (B, T, S)
        return ops.transpose(logits, (1, 0, 2)), alignments[:, :, None] if each_head else alignments

    def memory_mask(self, source) -> Any:
        """The mask `(B, S)` of the memory of a source."""
        return self.source_and_mask(source)[1] if self.source_name == SOURCE_IDS else self.encode(source)[0]["mask"]

    def split_alignments(self, alignments, lengths) -> list:
        """The alignments of each of several memories `(..., S_i)`, each a distribution, from those side by side.

        Args:
            alignments: `(..., S_1 + S_2 + ...)`, as of `align`.
            lengths: S_1, S_2, ..., the lengths of `memory["masks"]`.
        """
        ends = [0]
        for length in lengths:
            ends.append(ends[-1] + length)
        parts = [alignments[..., start:end] for start, end in itertools.pairwise(ends)]
        return [ops.divide_no_nan(part, ops.sum(part, axis=-1, keepdims=True)) for part in parts]

    @property
    def searches(self) -> CompiledSearches:
        """The searches compiled so far."""
        return vars(self).setdefault("_searches", CompiledSearches())

    def generate(
        self,
        source,
        *,
        max_length: int,
        forced_prefix: Any = None,
        return_alignments: bool = True,
        logits_processor: Callable | None = None,
        **options,
    ) -> SearchResult:
        """Finds target ids for a source by beam search, or by greedy search for `beam_size=1`, compiled.

        A row's result depends neither on the other rows nor on `batch_size`. `Translator` does the same for text.

        Args:
            source: As in `encode`, of arrays with any number of rows.
            max_length: The longest output, its end token included.
            forced_prefix: Ids `(B, P)` with which outputs begin, pad = free at that place.
            return_alignments: Whether the result has alignments.
            logits_processor: `(logits (R, V), token_ids (R, L), position, state) -> logits (R, V)`, a function or, if
                it has weights, a layer, such as `keras_attn.search.ShallowFusion`; see `keras_attn.search.beam_search`.
            **options: The fields of `keras_attn.search.SearchOptions` but ratios of lengths: `beam_size`, `n_best`,
                `length_penalty`, `min_length`, `banned_tokens` (ids), `batch_size`, ...

        Returns:
            A `keras_attn.search.SearchResult` of NumPy arrays. With several memories, `alignments` is a list.

        Raises:
            ValueError: if an option is unknown or out of range, a source is no array or has no elements, an id is
                outside of the model's vocabulary, or the model's logits are NaN.

        Example:
            >>> source = np.array([[*source_tokenizer.encode("two dogs"), 3]])
            >>> found = model.generate(source, max_length=6, beam_size=3)
            >>> target_tokenizer.decode(found.token_ids[0, 0])
            'deux chiens'
        """
        options = SearchOptions.for_arrays(options | {"max_length": max_length})
        search = greedy_search if options.is_greedy else beam_search
        settings = {"return_alignments": return_alignments, "logits_processor": logits_processor}
        return self._generate(source, search, options, forced_prefix, **settings)

    def sample(
        self,
        source,
        *,
        max_length: int,
        seed: int = 0,
        forced_prefix: Any = None,
        return_alignments: bool = True,
        logits_processor: Callable | None = None,
        **options,
    ) -> SearchResult:
        """Draws target ids from the model's distribution, compiled.

        No gradient flows through a draw. To train by samples (REINFORCE, minimum risk), score them: the logits of
        `model({..., "decoder_token_ids": ids})` for ids that begin with the start token have gradients.

        Args:
            seed: The random seed, on which, with a row's number, its samples depend.
            source, max_length, ...: As in `generate`.
            **options: The fields of `keras_attn.search.SampleOptions` but ratios of lengths: `num_samples`,
                `temperature`, `top_k`, `top_p`, ...

        Returns:
            A `keras_attn.search.SearchResult` of NumPy arrays with N = `num_samples`.

        Raises:
            ValueError: see `generate`.
        """
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise ValueError(f"Expected `seed` to be a whole number. Received: seed={seed!r}")
        options = SampleOptions.for_arrays(options | {"max_length": max_length})
        settings = {"return_alignments": return_alignments, "logits_processor": logits_processor}
        return self._generate(source, sample, options, forced_prefix, seed, **settings)

    def _generate(self, source, search, options, forced_prefix, seed=None, **settings) -> SearchResult:
        arrays = self.source_arrays(source)
        rows, size, end = len(tree.flatten(arrays)[0]), self.target_vocabulary_size, self.target_special_ids.end
        if self.pointer:
            size += arrays[SOURCE_IDS].shape[1]
        banned = banned_ids(options.banned_tokens, size, end)
        arrays |= limits_of_rows(options, forced_prefix, rows, size, end)
        if seed is not None:  # as inputs, so that a new seed does not compile a new model
            arrays["seed"] = np.full(rows, seed & 0x7FFFFFFF, "int32")  # (B,)
            arrays["row_ids"] = np.arange(rows, dtype="int32")  # (B,)
        arguments = options.arguments_of(search) | {"banned_token_ids": banned}
        sizes = options.max_length, options.batch_size
        return search_in_batches(self, search, arrays, *sizes, **arguments, **settings)

    def source_arrays(self, source) -> dict[str, Any]:
        """The source by the names of the inputs, as NumPy arrays of their dtypes.

        Raises:
            ValueError: for what are no arrays, such as a dataset, or not all of several inputs; floats where ids are
                expected, another shape, without rows or elements, or of different numbers of rows, for rows of
                different lengths, for ids outside of the vocabulary, or for whole numbers that an input's dtype does
                not hold.
        """
        if not (isinstance(source, (dict, list, tuple)) or hasattr(source, "shape")):
            raise ValueError(
                "Expected a source of arrays; of a dataset, the inputs of a batch, `dataset[0][0]`. Received: "
                f"{type(source).__name__}"
            )
        if isinstance(source, dict) and self.source_name in source:  # the inputs of a batch
            source = source[self.source_name]
        is_dict = isinstance(source, dict)
        if self.source_name is None and not (is_dict and source.keys() >= set(self.source_names)):
            received = ", ".join(map(str, source)) if is_dict else type(source).__name__
            raise ValueError(f"Expected a source as a dict of {', '.join(self.source_names)}. Received: {received}")
        inputs = self.inputs_of(source, None)
        specs = {name: self.input[name] for name in self.source_names}
        arrays = {
            name: tree.map_structure_up_to(spec, lambda _, x: _as_array(x), spec, inputs[name])
            for name, spec in specs.items()
        }
        _refuse_floats(arrays, specs)
        _refuse_shapes(arrays, specs)
        rows = {len(x) for x in tree.flatten(arrays)}
        if len(rows) != 1 or 0 in rows:
            raise ValueError(
                f"Expected a source of the same rows, at least one, in each array. Received: {sorted(rows)}"
            )
        if empty := [x.shape for x in tree.flatten(arrays) if not x.size]:
            raise ValueError(f"Expected a source with elements. Received: shape {empty[0]}")
        check_ids(arrays, self)
        leaves = zip(tree.flatten_with_path(arrays), tree.flatten(specs), strict=True)
        cast = [cast_input(".".join(map(str, path)), x, spec.dtype) for (path, x), spec in leaves]
        return tree.pack_sequence_as(arrays, cast)

    def source_and_mask(self, encoder_token_ids) -> tuple[Any, Any]:
        """Source ids (B, S) as the model reads them, and their mask (B, S) bool, True = real token.

        S is `source_length` afterwards, if that is given. Without `mask_padding` the mask is True everywhere.

        Raises:
            ValueError: for what are no ids.
        """
        _refuse_floats(encoder_token_ids, keras.KerasTensor((None, None), dtype="int32", name=SOURCE_IDS))
        pad = self.source_special_ids.pad
        if self.source_length is not None:
            room = ops.pad(encoder_token_ids, [[0, 0], [0, self.source_length]], constant_values=pad)
            encoder_token_ids = room[:, : self.source_length]  # (B, S)
        mask = ops.not_equal(encoder_token_ids, pad)  # (B, S)
        return encoder_token_ids, mask if self.mask_padding else ops.ones_like(mask)

    def fit(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.fit`; a `ParallelDataset` keeps its order, and its ids are checked.

        `shuffle` is False by default for a `ParallelDataset`, which has an order of its own. Its epoch is Keras':
        `initial_epoch` and `BackupAndRestore` go on with the batches that an uninterrupted `fit` would have, and a
        `fit` that begins with epoch 0 goes on with the dataset's own epoch. After an error the model has its weights
        on every backend.

        Raises:
            ValueError: if an id is outside its vocabulary (see `keras_attn.check_ids`), the loss takes probabilities,
                as Keras' cross-entropies do by name: the model returns logits; or for a `class_weight`, which Keras
                would take for that of positions.
        """
        options = inspect.signature(super().fit).bind(x, y, *args, **kwargs).arguments
        _refuse_class_weight(options.get("class_weight"))
        for data in (x, options.get("validation_data")):
            if hasattr(data, "largest_token_ids"):
                check_ids(data, self)
        if hasattr(x, "largest_token_ids"):
            options.setdefault("shuffle", False)
            callbacks = options.get("callbacks") or []
            options["callbacks"] = [_Epochs(x), *keras.tree.flatten(getattr(callbacks, "callbacks", callbacks))]
        build_optimizer(self)
        with keep_values(self):
            return super().fit(**options)

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):
        """As `keras.Model.train_on_batch`; a `class_weight` is refused as by `fit`."""
        _refuse_class_weight(class_weight)
        return super().train_on_batch(x, y, sample_weight, return_dict=return_dict)

    def train_step(self, *args, **kwargs):
        """As Keras', with dense gradients of embeddings on TensorFlow."""
        if self.quantized:
            raise ValueError(
                "Expected a model in its own precision to train. Received: that of `quantize`, whose matrices are read "
                "once: train the translator's own model, then quantize it"
            )
        with dense_gradients(self.optimizer):
            return super().train_step(*args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        """As `keras.Model.evaluate`; the epoch of a `ParallelDataset` stays.

        After an error the model has its weights on every backend.
        """
        with keep_values(self), _keep_epoch(x):
            return super().evaluate(x, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        """As `keras.Model.predict`; the epoch of a `ParallelDataset` stays.

        After an error the model has its weights on every backend.

        Raises:
            ValueError: for a dataset whose batches have logits of several shapes, which cannot be one array.
        """
        widths = {(length, self.pointer and source) for _, source, length in getattr(x, "shapes", ())}
        if len(widths) > 1:
            raise ValueError(
                "Expected a dataset of one bucket for `predict`, which returns one array: give it "
                "`bucket_boundaries=1`, or call `predict_on_batch(inputs)` for each batch. Received: batches (B, S, T) "
                f"of {x.shapes}"
            )
        with keep_values(self), _keep_epoch(x):
            return super().predict(x, *args, **kwargs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        check_loss(self.loss, self.pointer, self.target_vocabulary_size)
        y, sample_weight = single_array(y), single_array(sample_weight)
        return super().compute_loss(x, y, y_pred, self._token_weights(y, sample_weight), training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        y, sample_weight = single_array(y), single_array(sample_weight)
        return super().compute_metrics(x, y, y_pred, self._token_weights(y, sample_weight))

    def _token_weights(self, labels, sample_weight):
        """Sample weights `(B, T)`: one number a sentence is that of each token, but not of padding."""
        if sample_weight is None or tuple(sample_weight.shape[1:]) not in ((), (1,)):
            return sample_weight
        real = ops.cast(ops.not_equal(labels, self.target_special_ids.pad), sample_weight.dtype)  # (B, T)
        return ops.reshape(sample_weight, (-1, 1)) * real

    def save_own_variables(self, store) -> None:
        """Saves the state of every seed generator, which Keras does not, so that training continues with its dropout.

        On torch, Keras' dropout draws from torch's own generator, whose state no model has.
        """
        for i, state in enumerate(self._random_states()):
            store[str(i)] = state

    def load_own_variables(self, store) -> None:
        """Restores what `save_own_variables` saved; files of version 0.1.0 and before have none of it."""
        saved = set(store.keys())
        for i, state in enumerate(self._random_states()):
            if str(i) in saved:
                state.assign(store[str(i)])

    def _random_states(self) -> list[keras.Variable]:
        passing = {id(v) for v in (*self.weights, *self.metrics_variables)}
        return [v for v in self.variables if id(v) not in passing]

    def set_arguments(self, scope: dict[str, Any], base: type | None = None) -> keras.DTypePolicy:
        """Records a constructor's arguments from its `locals()`, as attributes and for `get_config`.

        It is the first line of a constructor whose variadic argument is called `kwargs`. If a subclass and its parent
        both call it, the config is the subclass's.

        Args:
            scope: `locals()`.
            base: The nearest parent whose constructor's arguments are not the user's to give; None: `Seq2Seq`.

        Returns:
            The dtype policy for the model's layers.

        Raises:
            ValueError: if `kwargs` has a name that is no argument.
        """
        kwargs = scope["kwargs"]
        shared = (*MODEL_ARGUMENTS, *ID_ARGUMENTS, *self.shared_arguments)
        refuse_unknown_arguments(type(self), kwargs, base=base or Seq2Seq, also=shared)
        arguments = {name: value for name, value in scope.items() if name not in ("self", "kwargs", "__class__")}
        if "_arguments" not in vars(self):
            # Serialised now: a layer's config changes when the model builds it.
            inherited = {name: value for name, value in kwargs.items() if name not in MODEL_ARGUMENTS}
            self.set_layers(_arguments={name: _serialized(value) for name, value in (arguments | inherited).items()})
        # `inputs` is a property of Keras' functional models.
        self.set_layers(**{name: value for name, value in arguments.items() if name != "inputs"})
        self._set_ids({name: kwargs.pop(name) for name in ID_ARGUMENTS if name in kwargs})
        return keras.dtype_policies.get(kwargs.get("dtype"))

    def _set_ids(self, given: dict[str, Any]) -> None:
        for side in ("source", "target"):
            ids = given.get(name := f"{side}_special_ids", DEFAULT_IDS)
            if not isinstance(ids, SpecialIds):
                raise ValueError(f"Expected `{name}` to be a keras_attn.SpecialIds. Received: {ids!r}")
            if name in given and (size := vars(self).get(f"{side}_vocabulary_size")):
                ids.check(size, f"`{name}`")
        given.get("target_special_ids", DEFAULT_IDS).check_start()
        if (length := given.get("source_length")) is not None:
            check_size("source_length", length)
        self.set_layers(**given)

    def set_layers(self, **layers) -> None:
        """Sets attributes before the functional graph, which tracks the layers, has been built."""
        for name, value in layers.items():
            object.__setattr__(self, name, value)  # torch refuses modules on an object that is not yet initialised

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, from which the functional graph follows, and which layers have changed since.

        Raises:
            ValueError: if two arguments share a layer: each has a config of its own, which would untie them.
        """
        owners = {}
        given = [name for name, value in self._arguments.items() if isinstance(value, dict) and "class_name" in value]
        for name in given:
            part = vars(self).get(name)
            for layer in all_layers(part) if isinstance(part, keras.layers.Layer) else ():
                if layer.weights and (owner := owners.setdefault(id(layer), name)) != name:
                    raise ValueError(
                        "Expected arguments without a layer in common, which no file keeps as one. "
                        f"Received: {layer.name!r} in {owner} and in {name}"
                    )
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        arguments = keras.saving.serialize_keras_object(self._arguments)  # Keras' error for what cannot be saved
        config = {**arguments, "name": self.name, "trainable": self.trainable, "dtype": dtype}
        changed = changed_layers(self)
        if not changed and "'trainable': False" in str(arguments):  # which may be trained by now
            changed = {CHANGED_LAYERS: []}
        return config | changed

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return make_model(cls, config, custom_objects)


class _Epochs(keras.callbacks.Callback):
    """Gives a `ParallelDataset` the epoch of `fit`; one that begins with 0 is the dataset's own.

    Args:
        dataset: The dataset.
    """

    def __init__(self, dataset):
        super().__init__()
        self.dataset = dataset
        self._own, self._first = dataset.epoch, None  # Keras calls `on_epoch_end` before the first epoch, too

    def on_epoch_begin(self, epoch, logs=None):
        if self._first is None:
            self._first = 0 if epoch else self._own
        if self.dataset.epoch != self._first + epoch:
            self.dataset.set_epoch(self._first + epoch)


@contextlib.contextmanager
def _keep_epoch(x: Any) -> Iterator[None]:
    """Keeps the epoch of a `ParallelDataset`, whose `on_epoch_end` Keras calls before and after `evaluate`."""
    if not hasattr(x, "largest_token_ids"):
        yield
        return
    x.on_epoch_end = lambda: None
    try:
        yield
    finally:
        del x.on_epoch_end


def token_inputs() -> dict[str, keras.KerasTensor]:
    """The inputs of a model's functional graph: "encoder_token_ids" (B, S) and "decoder_token_ids" (B, T).

    Example:
        >>> sorted(keras_attn.models.token_inputs())
        ['decoder_token_ids', 'encoder_token_ids']
    """
    return {name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS}


def _serialized(value: Any) -> Any:
    """The config of an argument; a layer without one itself, whose model can be trained but not saved."""

    def without_shared_ids(config):  # which Keras adds while it loads a file, and which mean nothing in another
        if isinstance(config, list):
            return [without_shared_ids(one) for one in config]
        if not isinstance(config, dict):
            return config
        return {name: without_shared_ids(one) for name, one in config.items() if name != "shared_object_id"}

    if isinstance(value, type):  # which the constructor refuses, or makes an object of
        return value
    try:
        return without_shared_ids(keras.saving.serialize_keras_object(value))
    except NotImplementedError:
        return value


def make_inputs(spec, name: str) -> Any:
    """New inputs of a functional graph, in the structure, of the shapes and dtypes of KerasTensors."""

    def make(path, x):
        return keras.Input(x.shape[1:], dtype=x.dtype, name="_".join([name, *map(str, path)]))

    return tree.pack_sequence_as(spec, [make(path, x) for path, x in tree.flatten_with_path(spec)])


def _refuse_class_weight(class_weight) -> None:
    if class_weight is not None:
        raise ValueError("Expected weights of tokens (B, T) as `sample_weight`. Received: `class_weight`")


def _as_array(x) -> np.ndarray:
    shapes = {np.shape(row) for row in x} if isinstance(x, (list, tuple)) else ()
    if len(shapes) > 1:
        raise ValueError(
            'Expected rows of one length, as `keras.utils.pad_sequences(rows, dtype=..., padding="post")` makes them. '
            f"Received: rows of the shapes {sorted(shapes)}"
        )
    array = ops.convert_to_numpy(x)
    if array.dtype.kind in "USO":
        raise ValueError(f"Expected a source of numbers; a `Translator` takes text. Received: {array.tolist()!r:.80}")
    return array


def _refuse_floats(inputs: Any, specs: Any) -> None:
    """Raises ValueError for floats where ids are expected: Keras would cut them to whole numbers."""
    for spec, (path, x) in zip(tree.flatten(specs), tree.flatten_with_path(inputs), strict=False):
        dtype = keras.backend.standardize_dtype(x.dtype) if hasattr(x, "dtype") else type(x).__name__
        if "int" in spec.dtype and "float" in dtype:
            name = ".".join(map(str, path)) or spec.name
            raise ValueError(f"Expected {name} of dtype {spec.dtype}. Received: dtype {dtype}")


def _refuse_shapes(inputs: Any, specs: Any) -> None:
    """Raises ValueError for arrays of other axes; Keras adds or leaves out a last one of size 1."""
    for spec, (path, x) in zip(tree.flatten(specs), tree.flatten_with_path(inputs), strict=True):
        shape, expected = x.shape, spec.shape
        if len(shape) != len(expected):
            shape, expected = (one[:-1] if one[-1:] == (1,) else one for one in (shape, expected))
        pairs = zip(shape, expected, strict=False)
        if len(shape) != len(expected) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
            name = ".".join(map(str, path))
            raise ValueError(f"Expected {name} of shape {spec.shape}, rows first. Received: shape {x.shape}")


def check_ids(x: Any, model: keras.Model) -> None:
    """Checks that token ids are in a model's vocabularies.

    The backends differ in what an id outside the vocabulary does: an error, NaN, or a wrong loss without a word. The
    `fit` of a model calls this for a `ParallelDataset`, whose largest ids are known; for arrays, call it yourself.

    Args:
        x: A `ParallelDataset`; a batch `(inputs, labels, ...)`; or inputs, a dict of two arrays or a pair of them.
        model: A `keras_attn.models.Seq2Seq`. With `pointer=True` a source of S words adds S ids to its vocabularies.

    Raises:
        ValueError: if an id is not.

    Example:
        >>> keras_attn.check_ids({"encoder_token_ids": np.array([[4, 3]]), "decoder_token_ids": np.array([[2]])}, model)
        >>> keras_attn.check_ids(keras_attn.ParallelDataset([[4]], [[10**6]], batch_size=1), model)
        Traceback (most recent call last):
            ...
        ValueError: Expected labels from 0 to 12, the ids of the model's vocabulary. Received: 1000000
    """
    source, target = model.source_vocabulary_size, model.target_vocabulary_size
    sizes = {SOURCE_IDS: source, TARGET_IDS: target, "labels": target}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    if (largest := getattr(x, "largest_token_ids", None)) is not None:
        temporary = max(length for _, length, _ in x.shapes) if model.pointer else 0
        ranges = {name: (0, one) for name, one in zip((SOURCE_IDS, "labels"), largest, strict=True) if name in sizes}
    else:
        arrays = _arrays(x, model, sizes)
        temporary = arrays[SOURCE_IDS].shape[1] if model.pointer else 0
        ranges = {name: array for name, array in arrays.items() if array.size}
    for name, ids in ranges.items():
        check_in_vocabulary(name, ids, sizes[name] + temporary)


def _arrays(x: Any, model: Seq2Seq, names: Collection[str]) -> dict[str, np.ndarray]:
    inputs, labels = x, None
    if isinstance(x, (tuple, list)) and (isinstance(x[0], (dict, tuple, list)) or len(x) > len(INPUTS)):
        inputs, labels = x[0], x[1] if len(x) > 1 else None
    if not isinstance(inputs, dict):
        if not isinstance(inputs, (tuple, list)) or len(inputs) != len(INPUTS):
            raise ValueError(
                "Expected inputs as a dict, or as a pair of source and target ids. Received: "
                f"{type(inputs).__name__} of shape {tree.map_structure(np.shape, inputs)}"
            )
        inputs = dict(zip((model.source_name, TARGET_IDS), inputs, strict=True))
    named = inputs | ({} if labels is None else {"labels": labels})
    return {name: ops.convert_to_numpy(array) for name, array in named.items() if name in names}


def check_loss(loss: Any, pointer: bool, vocabulary_size: int) -> None:
    """Raises ValueError for a loss that would take the model's logits for something else.

    Args:
        loss: What `compile` was given: a name, a function, a `keras.losses.Loss`, or a list or dict of them.
        pointer: Whether the logits are wider than the vocabulary.
        vocabulary_size: The size of the target vocabulary.

    Raises:
        ValueError: for a loss of probabilities, as Keras' cross-entropies are by name or without `from_logits=True`;
            and, with a pointer, for a smoothed loss that does not know the size of the vocabulary.
    """
    for one in keras.tree.flatten(loss):
        if _takes_probabilities(one):
            name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
            raise ValueError(
                "Expected a loss of logits, which the model returns: `keras_attn.losses.SmoothedCrossentropy()` "
                "or `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`. Received: a loss of probabilities, "
                f"{name!r} without `from_logits=True`"
            )
        if pointer and getattr(one, "label_smoothing", 0) and not getattr(one, "vocabulary_size", None):
            raise ValueError(
                f"Expected `SmoothedCrossentropy({one.label_smoothing}, vocabulary_size={vocabulary_size})`: with "
                "`pointer=True` the logits are wider than the vocabulary, and impossible words are not smoothed. "
                "Received: vocabulary_size=None"
            )


def _takes_probabilities(loss: Any) -> bool:
    """Returns True for a loss of Keras that can take logits and was not told to."""
    if isinstance(loss, str):
        if loss.lower() in _BY_SHAPE:
            return True
        loss = keras.losses.get(loss)
    if inspect.isfunction(loss):
        parameter = inspect.signature(loss).parameters.get("from_logits")
        return parameter is not None and parameter.default is False
    return getattr(loss, "from_logits", None) is False


def has_alignments(inputs) -> bool:
    """Returns True if the inputs of a model include target alignments."""
    return isinstance(inputs, dict) and ALIGNMENTS in inputs


def alignment_crossentropy(alignments, targets):
    """The cross-entropy of alignments, summed over target words, and the number of those that have links.

        loss = -(1 / n) sum_t sum_j A_tj log alpha_tj        (Chen et al. 2016, arXiv:1607.01628)

    with n the number of rows t of A that are not zero; all other rows add nothing.

    Args:
        alignments: alpha `(B, T, S)`, the model's.
        targets: A `(B, T, S)`, rows of zeros, or that sum to the weight of this loss. With another S, that of a batch
            whose source rows the model pads or cuts (`source_length`), they are padded or cut alike.

    Returns:
        n times the loss, and n, float32 scalars.
    """
    alignments, targets = ops.cast(alignments, "float32"), ops.cast(targets, "float32")
    if alignments.shape[-1] != targets.shape[-1]:
        length = ops.shape(alignments)[-1]
        targets = ops.pad(targets, [[0, 0], [0, 0], [0, length]])[..., :length]
    total = -ops.sum(targets * ops.log(ops.maximum(alignments, _LEAST_ATTENTION)))
    count = ops.sum(ops.cast(ops.sum(targets, axis=-1) > 0, "float32"))
    return total, count


def changed_layers(model: keras.Model) -> dict[str, Any]:
    """The entry of a model's config for its layers that are frozen or quantized; empty without any.

    Args:
        model: A model whose layers follow from its arguments, in the same order each time.

    Returns:
        A dict with a list under `CHANGED_LAYERS`: each layer's "index" among all, and what `make_model` does to it.
    """
    changed = []
    for i, layer in enumerate(all_layers(model)[1:]):
        change = {} if layer.trainable else {"trainable": False}
        if layer.quantization_mode:
            config = keras.saving.serialize_keras_object(getattr(layer, "quantization_config", None))
            change |= {"mode": layer.quantization_mode, "quantization_config": config}
        changed += [{"index": i, **change}] if change else []
    return {CHANGED_LAYERS: changed} if changed else {}


def make_model(cls: type, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> keras.Model:
    """A model from its config: constructs it, then quantizes and freezes the layers that `changed_layers` found.

    Args:
        cls: The model's class.
        config: Of `get_config`; values that are dicts or lists are deserialised.
        custom_objects: As in `keras.saving.deserialize_keras_object`.
    """

    def deserialized(value):
        if isinstance(value, list):
            return [deserialized(one) for one in value]
        if not isinstance(value, dict):
            return value
        # A copy: `from_config` of Keras' stacks and wrappers empties what it is given.
        return keras.saving.deserialize_keras_object(copy.deepcopy(value), custom_objects)

    arguments = {name: deserialized(value) for name, value in config.items()}
    changed = arguments.pop(CHANGED_LAYERS, None)
    model = cls(**arguments)
    by_index = {change["index"]: change for change in changed or ()}
    for i, layer in enumerate(all_layers(model)[1:]):
        change = by_index.get(i, {})
        if "mode" in change and not layer.quantization_mode:
            with np.errstate(invalid="ignore"):  # its weights may be NaN until a file is read
                layer.quantize(change["mode"], type_check=False, config=change["quantization_config"])
        trainable = change.get("trainable", True)
        if changed is not None and layer.trainable != trainable:  # a layer comes after the one that it is a part of
            layer.trainable = trainable
    return model

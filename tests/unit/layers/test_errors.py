"""Mistakes in the arguments of layers, each with its sentence."""

import numpy as np
import pytest
from keras import layers

import keras_attn as ka
from keras_attn.layers import PairReadout, StackedEncoder, get_attention, monotonic_alignment
from keras_attn.models import LSTMSeq2Seq, RNNSearch
from recipes.rnnsearch import Config

B, T, S, E, H, M, A, F, V = 2, 3, 5, 7, 11, 13, 17, 19, 23
VALUES, INPUTS = np.ones((B, S, M), "float32"), np.ones((B, T, E), "float32")


class OwnCell(layers.Layer):
    state_size, dropout = H, 0.1

    def get_initial_state(self, batch_size=None):
        raise NotImplementedError


class Halved(layers.GRUCell):
    def call(self, inputs, states, training=False):
        raise NotImplementedError


class Stack(layers.StackedRNNCells):
    def call(self, inputs, states, training=False):
        raise NotImplementedError


def gru(units=H, **options):
    return layers.GRUCell(units, **options)


def decoder(**options):
    return ka.AttentionDecoder(**{"cell": gru(), "attention": ka.BahdanauAttention(A), **options})


def between(**options):
    return decoder(attend="between", **{"second_cell": gru(), **options})


def search(found):
    """Greedy search with a step that returns this."""
    memory = {"mask": np.ones((1, S), "bool")}
    return ka.search.greedy_search(lambda *_: found, memory, (), max_length=3)


def stacks(first=2, second=2, **options):
    return StackedEncoder([gru() for _ in range(first)], [gru() for _ in range(second)], **options)


ATTENTION = [
    (lambda: get_attention("dott"), r"'concat', 'cosine', 'coverage', 'dot', .*Received: 'dott'"),
    (lambda: ka.AttentionDecoder(gru(5), "dott"), "Received: 'dott'"),
    (lambda: ka.LuongAttention(layers.Dense(3)), "Expected an `Attention` layer"),
    (lambda: ka.LuongAttention(ka.LocalMonotonicAttention()), "not another global or local attention"),
    (lambda: ka.LuongAttention("general_monotonic"), "not another global or local attention"),
    (lambda: ka.LuongAttention(ka.GatedAttention(A)), "nor one whose gate or heads.*Received: <GatedAttention"),
    (lambda: ka.LocalMonotonicAttention(ka.MultiHeadAttention(2)), "nor one whose gate or heads"),
    (lambda: ka.LuongAttention(ka.DotAttention(normalizer="hardmax")), "of LuongAttention itself.*='hardmax'"),
    (lambda: ka.LuongAttention(8), r"GeneralAttention\(use_scale=True\).*Received, as by tensorflow_addons.* 8"),
    (lambda: ka.LuongAttention(8, VALUES), r"attention\(query, values, mask=mask\).* more positional"),
    (lambda: ka.LuongAttention(units=8, scale=True), "Received, as by tensorflow_addons.*: scale, units"),
    (lambda: ka.LocalPredictiveAttention(8, memory=None), "Received, as by tensorflow_addons.*: 8, memory"),
    (lambda: ka.DotAttention(normalizer="softmin"), r"\['hardmax', 'softmax', 'sparsemax'\].*='softmin'"),
    (lambda: ka.ConcatAttention(0), "`units` to be a positive whole number"),
    (lambda: ka.BahdanauAttention(2.5), "`units` to be a positive whole number"),
    (lambda: ka.BahdanauAttention(True), "`units` to be a positive whole number"),
    (lambda: ka.LocationAttention(2.5), "`max_length` to be a positive whole number"),
    (lambda: ka.LocalMonotonicAttention(window=0), "`window` to be a positive whole number"),
    (lambda: ka.CosineAttention(sharpness=-1.0), "`sharpness` above 0"),
    (lambda: ka.DotAttention().build((B, H), (B, S, M)), f"DotAttention.*query {H}, memory {M}"),
    (lambda: ka.BahdanauMonotonicAttention(A, mode="soft"), r"`mode` to be one of \['recursive', .* mode='soft'"),
    (lambda: ka.GeneralMonotonicAttention(inference_mode="soft"), "`inference_mode` to be one of"),
    (lambda: ka.GeneralMonotonicAttention(sigmoid_noise=-1.0), "`sigmoid_noise` of at least 0"),
    (lambda: ka.GeneralMonotonicAttention(chunk_size=0), "`chunk_size` to be a positive whole number"),
    (lambda: ka.GeneralMonotonicAttention(normalizer="sparsemax"), "Expected no `normalizer`"),
    (lambda: monotonic_alignment(np.ones((1, 2)), np.ones((1, 2)), "soft"), "`mode` to be one of"),
    (lambda: ka.LocationSensitiveAttention(A, kernel_size=4), "an odd `kernel_size`. Received: kernel_size=4"),
    (lambda: ka.LocationSensitiveAttention(A, filters=0), "`filters` to be a positive whole number"),
    (lambda: ka.CoverageAttention(A, max_fertility=0.0), r"`max_fertility` above 0, or None\. Received: .*=0\.0"),
    (lambda: ka.NeuralCoverageAttention(A, coverage_units=0), "`coverage_units` to be a positive whole number"),
    (lambda: ka.SelfAttention(0), "`num_heads` to be a positive whole number"),
    (lambda: ka.MultiHeadAttention(3).build((B, T, H), (B, S, M)), f"width {H}, num_heads=3"),
    (lambda: ka.MultiHeadAttention(3, score=ka.MultiHeadAttention(2)), "without heads of its own"),
    (lambda: ka.MultiHeadAttention(3, score="additiv"), r"'additive', .*Received: 'additiv'"),
    *[
        (lambda layer=layer: layer.keys(VALUES), "Expected a built layer")
        for layer in (
            ka.BahdanauAttention(A),
            ka.GeneralAttention(),
            ka.ConcatAttention(),
            ka.CoverageAttention(A),
            ka.MultiHeadAttention(3),
        )
    ],
    (lambda: ka.BahdanauMonotonicAttention(H, sigmoid_noise=1.0, dropout=0.1), "Expected `sigmoid_noise` or `dropout`"),
    (
        lambda: ka.LuongAttention(ka.GeneralAttention(dropout=0.1)),
        "`normalizer` and `dropout` of LuongAttention itself",
    ),
    (lambda: ka.MultiHeadAttention(2, score=ka.DotAttention(), dropout=0.1), "`dropout` of the score itself"),
    (lambda: ka.DotAttention(dropout=1.0), "Expected `dropout` from 0 to below 1. Received: dropout=1.0"),
]
CELLS = [
    (lambda: ka.LayerNormGRUCell(H, reset_after=False), "Expected `reset_after=True`"),
    (
        lambda: ka.DeepTransitionCell([gru(), layers.LSTMCell(H)]),
        rf"states of the same sizes. Received: states of \[\[{H}\], \[{H}, {H}\]\]",
    ),
    (lambda: ka.DeepTransitionCell([]), r"states of the same sizes. Received: states of \[\]"),
    (lambda: ka.DeepTransitionCell([gru(), layers.StackedRNNCells([gru()])]), "Expected transitions to be Keras'"),
    (lambda: ka.DeepTransitionCell([Halved(H)]), "Expected transitions to be Keras' GRUCell, LSTMCell or SimpleRNNC"),
    (
        lambda: layers.RNN(ka.DeepTransitionCell([gru(dropout=0.1)]))(INPUTS, training=True),
        "Expected a layer of this package, such as `RNNEncoder`, to draw",
    ),
    (lambda: ka.ResidualCells([gru(), gru(3)]), rf"one width .* first_skip=1 and layers of \[{H}, 3\] units"),
    (lambda: ka.ResidualCells([gru(), gru()], first_skip=0), "`first_skip` of at least 1.* Received: first_skip=0"),
    (lambda: ka.ContextGateCell(H, gate="context"), r"one of source, target, both\. Received: gate='context'"),
    (lambda: ka.ContextGateCell(0), "`units` to be a positive whole number"),
    (lambda: ka.RNNEncoder(ka.ContextGateCell(H))(INPUTS), r"that gives it the context.*Received: inputs without"),
    (
        lambda: RNNSearch(31, 37, units=5, context_gate="both", recurrent_dropout=0.1),
        "Expected no `recurrent_dropout` with a `context_gate`",
    ),
]
ENCODERS = [
    (lambda: ka.RNNEncoder(layers.LSTM(H)), "one step, such as `keras.layers.LSTMCell"),
    (
        lambda: ka.RNNEncoder(gru())(INPUTS, initial_state=[np.ones((B, H))] * 2),
        rf"Received: states of the widths \[{H}, {H}\]",
    ),
    (lambda: ka.BiGRUEncoder(H)(INPUTS, initial_state=np.ones((B, H))), "to be a pair with a `backward_cell`"),
    (lambda: ka.RNNEncoder(gru(), merge_mode="sum"), "a `backward_cell` of the widths of `cell` with all but concat"),
    (lambda: ka.BiGRUEncoder(H, num_layers=0), "`num_layers` to be a positive whole number"),
    (lambda: ka.RNNEncoder(OwnCell()), "cell without dropout"),
    (lambda: ka.RNNEncoder(Halved(H, dropout=0.1)), "cell without dropout of its own, .* a Halved with dropout"),
    (lambda: ka.RNNEncoder(layers.LSTMCell(H), backward_cell=OwnCell()), "cell without dropout"),
    (lambda: ka.RNNEncoder(layers.StackedRNNCells([Stack([gru()])])), "layer by layer. Received: Stack, whose `call`"),
    (
        lambda: ka.RNNEncoder(layers.LSTMCell(H), backward_cell=gru()),
        r"as many layers and states as `cell`. Received: \[1\] and \[2\]",
    ),
    (lambda: ka.RNNEncoder(gru(), backward_cell=gru(), reverse=True), "reads backwards already"),
    (lambda: ka.PyramidEncoder(gru()), "a stack of at least two layers without skip connections. Received: reduce=2"),
    (lambda: ka.PyramidEncoder(layers.StackedRNNCells([gru(), gru()]), reduce=1), "Expected `reduce` above 1"),
    (lambda: ka.PyramidEncoder(ka.ResidualCells([gru(), gru()])), "without skip connections"),
    (lambda: ka.AttentionPooling(0), "`units` to be a positive whole number"),
    (lambda: ka.AttentionPooling(3)(np.ones((2, 3, 5, 7))), r"Expected inputs of shape \(B, S, M\)"),
    (lambda: stacks(order="sideways"), "`order` to be one of parallel, alternating, upwards, and as many"),
    (lambda: stacks(order="upwards"), "`order` to be one of parallel, alternating, upwards, and as many"),
    (lambda: stacks(second=0), "`order` to be one of parallel, alternating, upwards, and as many"),
]
DECODERS = [
    (lambda: decoder(cell=layers.GRU(H)), "Received: a layer GRU, which runs over all"),
    (
        lambda: decoder()(INPUTS, VALUES, cell_state=[np.ones((B, 5))]),
        rf"`cell_state` to be states of the widths of those of gru_cell.*, \[{H}\]\. Received: .*\[5\]",
    ),
    (lambda: search((np.zeros((1, V)), ())), r"Expected `step` to return \(logits .* Received: 2 \("),
    (lambda: search((np.zeros((1, V)), (), None)), r"zeros_like\(memory.* Received: 3 \(.*, tuple, NoneType\)"),
    (lambda: decoder(attend="during"), '"before", "between" or "after"'),
    (lambda: decoder(input_feeding=True), "only with attend='after'"),
    (lambda: decoder(dropout=0.1), "only with attend='after'"),
    (lambda: decoder(cell=OwnCell()), r"cell without dropout of its own, or Keras'.*Received: .* a OwnCell"),
    (lambda: decoder(cell=layers.Dense(H)), "Expected a Keras RNN cell"),
    (lambda: ka.FixedContextDecoder(layers.Dense(H)), "Expected a Keras RNN cell"),
    (
        lambda: decoder(attend="after", attentional="state"),
        "\"context\", or a list of layers, one for each of 1 .*'state'",
    ),
    (lambda: decoder(attend="after", attentional=[ka.AttentionalLayer(F)] * 2), "one for each of 1 attention"),
    (lambda: decoder(attend="after", output_attention=False), "`output_attention=False` with `attentional`"),
    (lambda: decoder(attend="after", cell_input=layers.Dense(3)), "`cell_input` with something to add"),
    (lambda: decoder(attend="after", dropout=20), "`dropout` from 0 to below 1. Received: dropout=20"),
    (lambda: decoder(attend="between"), "Expected a `second_cell` with attend='between'"),
    (lambda: decoder(second_cell=gru()), "Expected a `second_cell` with attend='between'"),
    (
        lambda: between(second_cell=layers.LSTMCell(H)),
        rf"states of the same sizes .* Received: lstm_cell.* with \[\[{H}, {H}\]\] and .* with \[\[{H}\]\]",
    ),
    (lambda: between(attention=[]), "Expected an attention layer"),
    (lambda: decoder()(INPUTS, [VALUES, VALUES]), "`values` for each of 1 attention layers. Received: 2"),
    (
        lambda: decoder()(INPUTS, VALUES, fed=np.ones((B, F), "float32")),
        "`fed` only with `input_feeding=True`",
    ),
    (
        lambda: ka.DecoderStack(decoder(), [gru(3, name="narrow")])(INPUTS, VALUES),
        rf"as wide as what they read, {H}\. Received: 3 units in narrow",
    ),
    (
        lambda: ka.DecoderStack(decoder(), [gru(3)], first_skip=1)(INPUTS, VALUES, cell_state=np.ones((B, H))),
        rf"as wide as its h, {H}, .* Received: states of \[3\] units",
    ),
]
OTHERS = [
    (lambda: PairReadout(0), "`units` to be a positive whole number"),
    (lambda: ka.CoverageLoss(-1.0), r"`weight` of at least 0\. Received: weight=-1\.0"),
    (
        lambda: ka.InputAttentionEncoder(gru(3), "additive"),
        "`attention` to be an `Attention` layer. Received: 'additive'",
    ),
    (
        lambda: ka.InputAttentionEncoder(gru(3), ka.BahdanauAttention(7)).build((2, None, 3)),
        r"of a static length T\. Received: shape \(2, None, 3\)",
    ),
    (
        lambda: ka.InputAttentionEncoder(gru(3), ka.CoverageAttention(7))(np.ones((2, 7, 3))),
        "`attention` without a state. Received: <CoverageAttention",
    ),
    (lambda: ka.CoverageLoss("xu"), r"`weight` of at least 0\. Received: weight='xu'"),
    (lambda: LSTMSeq2Seq(31, 37, units=5, embedding_size=7, coverage_loss=1.0), "Received: coverage_loss$"),
    (lambda: ka.WordDropout(-0.1), "rate of word dropout of at least 0 and below 1"),
    (lambda: ka.WordDropout(1.0), "rate of word dropout of at least 0 and below 1"),
    (lambda: Config(word_dropout=1.5), "`word_dropout` from 0 to 1"),
    (lambda: ka.ScheduledSampler(None), r"Expected settings of scheduled sampling, .*Received: None"),
    (lambda: ka.ScheduledSampling("constant", k=0.5, c=0.1), 'Expected `c` above 0 with decay="linear", and only'),
    (lambda: ka.ScheduledSampling("linear", k=float("inf"), c=0.1), 'Expected `k` above 0 with decay="linear"'),
    (lambda: ka.ScheduledSampling("constant", k=1.5), 'Expected `k` from 0 to 1 with decay="constant"'),
    (
        lambda: ka.unroll_steps(None, INPUTS, None, INPUTS),
        "Expected `length` or `targets` .*Received: neither",
    ),
    (
        lambda: ka.unroll_steps(None, INPUTS, None, INPUTS, length=7, targets=INPUTS),
        "Expected `length` or `targets` .*Received: both, with length=7",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), [*ATTENTION, *CELLS, *ENCODERS, *DECODERS, *OTHERS])
def test_mistakes_are_refused_with_a_sentence(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()


def test_attentions_given_by_name_have_weights_with_paths_of_their_own():
    """By which Keras clears gradients on torch; two memories may have the same mechanism."""
    made = ka.AttentionDecoder(gru(), ["general", "general", "concat"])
    made.build((B, T, E), (B, S, M))
    paths = [weight.path for weight in made.trainable_weights]
    assert len(set(paths)) == len(paths)
    assert ka.AttentionDecoder(gru(), "general").attention.name == "attention"

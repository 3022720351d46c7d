"""Hard monotonic attention, whose alignments are summed over exactly."""

from functools import partial

import keras
from keras import ops
from keras.initializers import RandomUniform

from keras_attn.layers import AttentionDecoder, HardAlignment, PairReadout, RNNEncoder, at_least_float32, of_tokens
from keras_attn.models.builders import make_first_layers, make_lstm_stack, make_output_projection
from keras_attn.models.recurrent import RecurrentSeq2Seq
from keras_attn.models.seq2seq import Seq2Seq


@keras.saving.register_keras_serializable(package="keras_attn")
class HardMonotonicSeq2Seq(RecurrentSeq2Seq):
    """Wu and Cotterell's transducer: each target symbol is read from one source symbol, and none from an earlier one.

        h_j = [->h_j ; <-h_j],   s_i = LSTM(E y_{i-1}, s_{i-1})
        p(y_i | a_i = j, y_<i, x) = softmax(W tanh(U [s_i ; h_j] + b))                                   (`PairReadout`)
        p(y | x) = sum_a prod_i p(y_i | a_i, y_<i, x) p(a_i | a_{i-1}, y_<i, x)                        (`HardAlignment`)

    The sum over all alignments is exact, by the forward algorithm, whose variables p(a_i | y_<i, x) are in the state:
    logits are log p(y_i | y_<i, x), in float32, so that their cross-entropy is -log p(y | x), and search, sampling and
    ensembles treat the model as any other. Alignments are p(a_i | y_<i, x); `align_posterior` has those given all of y.
    Training needs memory for B T S (V + S + R) numbers: V should be some hundreds at most.

    Args:
        source_vocabulary_size, target_vocabulary_size: Vocabulary sizes, including the four special ids.
        units: LSTM units of each direction of the encoder, and of the decoder unless `decoder_units` is given.
        num_layers: Layers of the encoder.
        embedding_size: Width of E.
        decoder_units: LSTM units of the decoder; None: `units`.
        readout_size: R, the width of U's output; None: three times the decoder's units, that of its input.
        order, monotonic, window: As in `HardAlignment`.
        initializer: None: uniform in [-0.1, 0.1] for every matrix. Otherwise as in `LSTMSeq2Seq`.
        layer_dropout: Dropout rate between the encoder's layers.
        recurrent_dropout: As in `RNNSearch`.
        embedding_dropout, memory_dropout, output_dropout, word_dropout, scale_embeddings, source_special_ids,
            target_special_ids, mask_padding, source_length: As in `RecurrentSeq2Seq`.
        name, trainable, dtype: As in `keras.layers.Layer`; `dtype` applies to every layer.

    Raises ValueError for an unknown argument, another order, or a size that is not a positive whole number.

    Example:
        >>> sizes = dict(units=5, num_layers=1, embedding_size=7, readout_size=11)
        >>> model = keras_attn.models.HardMonotonicSeq2Seq(31, 37, **sizes)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: the source has no start symbol. The default sizes are those of the authors' scripts.

    References: Wu, Cotterell. Exact Hard Monotonic Attention for Character-Level Transduction. ACL 2019,
    arXiv:1905.06319. Wu, Shapiro, Cotterell. EMNLP 2018, arXiv:1808.10024.
    """

    shared_arguments = ("embedding_dropout", "memory_dropout", "output_dropout", "word_dropout", "scale_embeddings")

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        *,
        units: int = 400,
        num_layers: int = 2,
        embedding_size: int = 200,
        decoder_units: int | None = None,
        readout_size: int | None = None,
        order: int = 0,
        monotonic: bool = True,
        window: int = 4,
        initializer=None,
        layer_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **kwargs,
    ):
        dtype = self.set_arguments(locals())
        width = units if decoder_units is None else decoder_units
        paper = partial(RandomUniform, -0.1, 0.1)
        kernel, embeddings = make_first_layers(self, paper, embedding_size, dtype)
        options = {"initializer": initializer, "paper": paper, "dtype": dtype, "recurrent_dropout": recurrent_dropout}
        readers = [make_lstm_stack(units, num_layers, name=n, **options) for n in ("reader", "backward_reader")]
        own = {"kernel_initializer": kernel.clone(), "dtype": dtype}
        self.set_layers(alignment=HardAlignment(order, monotonic=monotonic, window=window, **own, name="alignment"))
        super().__init__(
            **embeddings,
            encoder=RNNEncoder(
                readers[0], backward_cell=readers[1], dropout=layer_dropout, name="encoder", dtype=dtype
            ),
            decoder=AttentionDecoder(
                make_lstm_stack(width, 1, name="cell", **options), [], dtype=dtype, name="decoder"
            ),
            readout=PairReadout(3 * width if readout_size is None else readout_size, **own, name="readout"),
            output_projection=make_output_projection(self, kernel, dtype),
            **kwargs,
        )

    def check_attention(self):
        """Raises nothing: guided alignment trains p(a_i | y_<i, x)."""

    def encode(self, source, max_length=None):
        values, mask = self._read_source(source)
        keys = self.alignment.keys(values)  # (B, S, A)
        memory = {**self.decoder.memory(values, mask), "alignment": keys, "readout": self.readout.keys(values)}
        first = self.alignment.first(keys, mask)  # (B, S)
        emissions = ops.zeros((*ops.shape(first), self.target_vocabulary_size), dtype=first.dtype)  # (B, S, V)
        return memory, {"decoder": self.decoder.initial_state(values), "log_alignment": first, "emissions": emissions}

    output_part = Seq2Seq.output_part  # none: the sum over alignments is taken of whole distributions

    def step(self, token_ids, memory, state):
        embedded = self._embed(self.target_embedding, token_ids)  # (B, E)
        output, _, _, decoder_state = self.decoder.step(embedded, memory, state["decoder"])  # (B, H)
        emissions = self._emissions(self.readout.pairs(output, memory["readout"]))  # (B, S, V)
        previous = state["log_alignment"], of_tokens(state["emissions"], token_ids)  # (B, S), (B, S)
        log_probs, log_alignment = self.alignment.step(output, emissions, memory["alignment"], memory["mask"], previous)
        state = {"decoder": decoder_state, "log_alignment": log_alignment, "emissions": emissions}
        return log_probs, state, ops.exp(log_alignment)

    def align_posterior(self, encoder_token_ids, decoder_token_ids):
        """p(a_i = j | y_1 .. y_{T-1}, x) `(B, T, S)`, given all tokens that the decoder reads, `(B, T)`."""
        return self.alignment.posterior(*self._lattice(self.inputs_of(encoder_token_ids, decoder_token_ids)))

    def _teacher_forced(self, inputs, sampler=None, each_head=False, training=None):
        log_probs, log_alignments = self.alignment(*self._lattice(inputs, training))
        alignments = ops.exp(log_alignments)  # (B, T, S)
        return log_probs, alignments[:, :, None] if each_head else alignments

    def _lattice(self, inputs, training=None):
        """The arguments of `HardAlignment`: states, values, log p(y_i | a_i) (B, T, S, V), token ids and mask."""
        values, mask = self._read_source(self.source_of(inputs), training)
        embedded = self._embed_target(inputs["decoder_token_ids"], {}, training)  # (B, T, E)
        states, _, _ = self.decoder(embedded, values, mask=mask, training=training)  # (B, T, H)
        features = self.output_dropout_layer(self.readout(states, values), training=training)  # (B, T, S, R)
        return states, values, self._emissions(features), inputs["decoder_token_ids"], mask

    def _read_source(self, source, training=None):
        encoded = self._encode_source(source, training)
        return encoded["values"], encoded["mask"]  # (B, S, M), (B, S)

    def _emissions(self, features):
        return ops.log_softmax(at_least_float32(self.output_projection(features)))  # log p(y_i | a_i)

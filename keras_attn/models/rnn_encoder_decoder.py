"""RNNencdec, the model without attention that RNNsearch was compared with."""

from functools import partial

import keras
from keras.initializers import RandomNormal

from keras_attn.layers import DeepOutput, FixedContextDecoder, RNNEncoder
from keras_attn.models.builders import make_cell, make_first_layers, make_output_projection
from keras_attn.models.recurrent import RecurrentSeq2Seq


@keras.saving.register_keras_serializable(package="keras_attn")
class RNNEncoderDecoder(RecurrentSeq2Seq):
    """Cho's RNN encoder-decoder: the last state of a GRU encoder is the context of every step of a GRU decoder.

        h_j = GRU(E x_j, h_{j-1})                                                     (appendix A.1.1)
        c = tanh(V h_S), or h_S   with `project_context=False`                        (section 2.2, A.1.1)
        s_0 = tanh(V' h_S)                                                            (A.1.2)
        s_i = GRU([E y_{i-1} ; c], s_{i-1})                                           (A.1.2)
        p(y_i) = softmax(W_o maxout(U_o s_i + V_o E y_{i-1} + C_o c))                 (A.1.2)

    The defaults are the paper's; see `recipes/rnnencdec.py` for sizes that suit some ten thousand sentence pairs.

    Args:
        source_vocabulary_size, target_vocabulary_size: Vocabulary sizes, including the four special ids.
        units: GRU units of the encoder and of the decoder; also the width of c.
        embedding_size: Width of E.
        readout_size: Width of the read-out after maxout.
        project_context: c = tanh(V h_S), as in the paper; False: c = h_S.
        readout_activation, tie_embeddings, initializer: As in `RNNSearch`; the paper's initialisers are orthogonal
            recurrent matrices and N(0, 0.01^2) elsewhere.
        memory_dropout: Dropout rate of h_S where c is computed from it.
        recurrent_dropout: As in `RNNSearch`.
        embedding_dropout, output_dropout, word_dropout, scale_embeddings, scheduled_sampling, source_special_ids,
            target_special_ids, mask_padding, source_length: As in `RecurrentSeq2Seq`.
        name, trainable, dtype: As in `keras.layers.Layer`; `dtype` applies to every layer.

    The alignment of `step` is 1 at the last source word, which h_S belongs to.

    Raises:
        ValueError: for an unknown argument, or sizes and ties that do not fit together.

    Example:
        >>> model = keras_attn.models.RNNEncoderDecoder(31, 37, units=5, embedding_size=7, readout_size=11)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: s_0 is computed from h_S, not from c; the update gate is Keras', one minus the paper's,
    and the reset gate does not act on C c; biases.

    Reference: Cho et al. Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation.
    EMNLP 2014, arXiv:1406.1078. Called RNNencdec by Bahdanau, Cho, Bengio, ICLR 2015.
    """

    shared_arguments = (
        "embedding_dropout",
        "memory_dropout",
        "output_dropout",
        "word_dropout",
        "scale_embeddings",
        "scheduled_sampling",
    )

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        *,
        units: int = 1000,
        embedding_size: int = 100,
        readout_size: int = 500,
        project_context: bool = True,
        readout_activation: str = "maxout",
        tie_embeddings: str | None = None,
        initializer=None,
        recurrent_dropout: float = 0.0,
        **kwargs,
    ):
        dtype = self.set_arguments(locals())
        paper = partial(RandomNormal, stddev=0.01)
        kernel, embeddings = make_first_layers(self, paper, readout_size, dtype)

        def cell(name):
            return make_cell("gru", units, kernel, name, dtype, reset_after=False, recurrent_dropout=recurrent_dropout)

        def tanh(name):
            return keras.layers.Dense(
                units, "tanh", use_bias=False, kernel_initializer=kernel.clone(), dtype=dtype, name=name
            )

        projection = tanh("context") if project_context else None
        super().__init__(
            **embeddings,
            encoder=RNNEncoder(cell("reader"), dtype=dtype, name="encoder"),
            bridge=tanh("bridge"),
            decoder=FixedContextDecoder(cell("cell"), projection=projection, dtype=dtype, name="decoder"),
            readout=DeepOutput(
                readout_size,
                activation=readout_activation,
                kernel_initializer=kernel.clone(),
                dtype=dtype,
                name="readout",
            ),
            output_projection=make_output_projection(self, kernel, dtype),
            **kwargs,
        )

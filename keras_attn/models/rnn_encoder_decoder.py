"""RNNencdec, the model that attention was compared with: all of the source in one vector."""

from functools import partial

import keras
from keras.initializers import RandomNormal

from keras_attn.layers import DeepOutput, FixedContextDecoder, RNNEncoder
from keras_attn.models import builders as parts
from keras_attn.models.seq2seq import RecurrentSeq2Seq, arguments


@keras.saving.register_keras_serializable(package="keras_attn")
class RNNEncoderDecoder(RecurrentSeq2Seq):
    """Cho's RNN encoder-decoder: a GRU reads, and its last state is all that another GRU gets, at every step.

        h_j = GRU(E x_j, h_{j-1})                                                     (appendix A.1.1)
        c = tanh(V h_S), or h_S with `project_context=False`                          (section 2.2, A.1.1)
        s_0 = tanh(V' h_S)                                                            (A.1.2)
        s_i = GRU([E y_{i-1} ; c], s_{i-1})                                           (A.1.2)
        p(y_i) = softmax(W_o maxout(U_o s_i + V_o E y_{i-1} + C_o c))                 (A.1.2)

    The defaults are the paper's; see `recipes/rnnencdec.py` for sizes that suit some ten thousand sentence pairs.

    Arguments:
        source_vocabulary_size, target_vocabulary_size: Ids on either side, the four special ones included.
        units: GRU units of the encoder and of the decoder; also the width of c.
        embedding_size, readout_size: Widths of E and of the read-out after maxout.
        project_context: c = tanh(V h_S), as in the paper; else h_S itself.
        readout_activation, tie_embeddings, initializer, scale_embeddings: As in `RNNSearch`; by default orthogonal
            recurrent matrices, and N(0, 0.01^2) elsewhere.
        embedding_dropout, memory_dropout, output_dropout: Shares dropped of the embeddings, of h_S as c is made of it,
            and of the read-out.

    The alignment of `step` is 1 at the last source word, where c is from.

    Raises:
        ValueError: for sizes or ties that cannot be.

    Example:
        >>> model = keras_attn.models.RNNEncoderDecoder(31, 37, units=5, embedding_size=7, readout_size=11)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: s_0 is made of h_S, not of c; the update gate is Keras', one minus the paper's, and the
    reset gate does not act on C c; biases.

    Reference: Cho et al. Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation.
    EMNLP 2014, arXiv:1406.1078. Called RNNencdec by Bahdanau, Cho, Bengio, ICLR 2015.
    """

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
        scale_embeddings: bool = False,
        embedding_dropout: float = 0.0,
        memory_dropout: float = 0.0,
        output_dropout: float = 0.0,
        **kwargs,
    ):
        given = arguments(locals())
        plain, vectors = parts.initializers(initializer, embedding_size, partial(RandomNormal, stddev=0.01))
        source_embedding, target_embedding = parts.embeddings(
            source_vocabulary_size, target_vocabulary_size, embedding_size, vectors, tie_embeddings, readout_size
        )

        def cell(name):
            return keras.layers.GRUCell(units, reset_after=False, kernel_initializer=plain.clone(), name=name)

        def tanh(name):
            return keras.layers.Dense(units, "tanh", use_bias=False, kernel_initializer=plain.clone(), name=name)

        projection = tanh("context") if project_context else None
        super().__init__(
            given,
            source_embedding=source_embedding,
            target_embedding=target_embedding,
            encoder=RNNEncoder(cell("reader"), name="encoder"),
            bridge=tanh("bridge"),
            decoder=FixedContextDecoder(cell("cell"), projection=projection, name="decoder"),
            readout=DeepOutput(
                readout_size, activation=readout_activation, kernel_initializer=plain.clone(), name="readout"
            ),
            output=parts.output_layer(target_vocabulary_size, plain, tie_embeddings),
            embedding_dropout=embedding_dropout,
            memory_dropout=memory_dropout,
            output_dropout=output_dropout,
            scale_embeddings=scale_embeddings,
            **kwargs,
        )

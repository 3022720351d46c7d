"""The 13.0 M configuration of the speed comparisons: the sizes of a common JoeyNMT model, as a recipe.

    python -m recipes.train tests.benchmarks.joeynmt_sizes --corpus multi30k-tok --source de --target en --no-export

BiGRU 512, GRU 512, additive attention 512, embeddings 256, input feeding, attentional layer 512; words seen twice;
dropout 0.5 on embeddings and 0.3 on the attentional layer; 128 sentences a batch.
"""

import dataclasses

import keras
from keras import layers

from keras_attn import AttentionalLayer, AttentionDecoder, BahdanauAttention, BiGRUEncoder
from keras_attn.models import RecurrentSeq2Seq
from keras_attn.training import TrainingConfig

EMBEDDING, UNITS, SENTENCES = 256, 512, 128


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    level: str = "word"
    source_vocabulary_size: int | None = None
    target_vocabulary_size: int | None = None
    min_frequency: int = 2
    batch_size: int = SENTENCES
    epochs: int = 8
    warmup_steps: int = 100
    ema_decay: float = 0.998
    tokenize: str = "none"


CONFIGS: dict[str, Config] = {}


@keras.saving.register_keras_serializable(package="keras_attn_benchmarks")
class JoeyNMTSizes(RecurrentSeq2Seq):
    """The configuration, from the public layers."""

    def __init__(self, source_vocabulary_size: int, target_vocabulary_size: int, **kwargs):
        self.set_arguments(locals())

        def embedding(size, name):  # of variance 1 / E: by Glorot's rule, over the vocabulary, they are too small
            return layers.Embedding(size, EMBEDDING, keras.initializers.RandomNormal(stddev=EMBEDDING**-0.5), name=name)

        super().__init__(
            source_embedding=embedding(source_vocabulary_size, "source_embedding"),
            target_embedding=embedding(target_vocabulary_size, "target_embedding"),
            encoder=BiGRUEncoder(UNITS, reset_after=True, name="encoder"),
            bridge=layers.Dense(UNITS, "tanh", name="bridge"),
            decoder=AttentionDecoder(
                layers.GRUCell(UNITS, reset_after=True, name="cell"),
                BahdanauAttention(UNITS, name="attention"),
                attend="after",
                attentional=AttentionalLayer(UNITS, use_bias=True, name="attentional"),
                input_feeding=True,
                dropout=0.3,
                name="decoder",
            ),
            output_projection=layers.Dense(target_vocabulary_size, use_bias=False, name="output"),
            embedding_dropout=0.5,
            **kwargs,
        )


def build(config: Config, source_vocabulary_size: int, target_vocabulary_size: int) -> keras.Model:
    """The model of this recipe."""
    return JoeyNMTSizes(source_vocabulary_size, target_vocabulary_size)

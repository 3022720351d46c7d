"""Models. Each of them is a `Seq2Seq`."""

from keras_attn.models.attention_seq2seq import AttentionSeq2Seq
from keras_attn.models.ensemble import Ensemble, average_weights, copy_model, mean_weights
from keras_attn.models.gnmt import GNMTSeq2Seq
from keras_attn.models.hard_monotonic import HardMonotonicSeq2Seq
from keras_attn.models.lstm_seq2seq import LSTMSeq2Seq
from keras_attn.models.luong import LuongSeq2Seq
from keras_attn.models.nematus import NematusSeq2Seq
from keras_attn.models.recurrent import RecurrentSeq2Seq
from keras_attn.models.rnmt_plus import RNMTPlusSeq2Seq
from keras_attn.models.rnn_encoder_decoder import RNNEncoderDecoder
from keras_attn.models.rnnsearch import RNNSearch
from keras_attn.models.search_models import CompiledSearches, ScoreModel, SearchModel, check_scores
from keras_attn.models.seq2seq import Seq2Seq, check_ids, token_inputs
from keras_attn.models.transformer import TransformerSeq2Seq

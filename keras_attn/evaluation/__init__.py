"""Evaluation: BLEU, chrF and TER with their sacreBLEU signatures, error rates, word alignments and their error rate."""

from keras_attn.evaluation.by_metric import all_scores, is_better, main_score, mcnemar_test
from keras_attn.evaluation.error_rates import edit_distance, phoneme_error_rate, word_error_rate
from keras_attn.evaluation.links import (
    AlignmentScore,
    Gold,
    Link,
    Model1,
    alignment_error_rate,
    grow_diag_final_and,
    model1_links,
    parse_links,
)
from keras_attn.evaluation.scores import Comparison, Interval, Score, bleu, bleu_interval, chrf, paired_bootstrap, ter

from keras_attn.plots.curves import (
    training_curves as training_curves,
)
from keras_attn.plots.heatmaps import (
    alignment as alignment,
    alignments as alignments,
    relations as relations,
)
from keras_attn.plots.sources import (
    image_alignment as image_alignment,
    spectrogram_alignment as spectrogram_alignment,
)
from keras_attn.plots.word_alignment import (
    SentenceComparison as SentenceComparison,
    WordAlignment as WordAlignment,
    align_words as align_words,
    comparison_page as comparison_page,
    html_page as html_page,
    merge_alignment as merge_alignment,
    to_pharaoh as to_pharaoh,
)

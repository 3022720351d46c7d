from keras_attn.search.arrays import (
    banned_ids as banned_ids,
    cast_input as cast_input,
    check_in_vocabulary as check_in_vocabulary,
    limits_of_rows as limits_of_rows,
)
from keras_attn.search.beam import (
    beam_search as beam_search,
    run_beam_search as run_beam_search,
    start_beam_search as start_beam_search,
)
from keras_attn.search.greedy import (
    greedy_search as greedy_search,
)
from keras_attn.search.options import (
    Limits as Limits,
    SampleOptions as SampleOptions,
    SearchOptions as SearchOptions,
    SearchResult as SearchResult,
    check_constraints as check_constraints,
    check_numbers as check_numbers,
    check_sizes as check_sizes,
    length_norm as length_norm,
    option as option,
)
from keras_attn.search.sampling import (
    sample as sample,
)
from keras_attn.search.scoring import (
    score_tokens as score_tokens,
)
from keras_attn.search.shallow_fusion import (
    ShallowFusion as ShallowFusion,
)

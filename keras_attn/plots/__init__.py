"""Pictures of alignments and training: heat maps and curves with Matplotlib, alignments as HTML and Pharaoh lines.

Matplotlib is imported when the first picture is drawn.
"""

from keras_attn.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__)

"""Data: parallel text, or arrays and text, as length-bucketed batches of static shapes."""

from keras_attn.data.dataset import ParallelDataset
from keras_attn.data.teacher_forcing import teacher_forcing

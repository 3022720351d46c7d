"""Data: parallel text, or arrays and text, as length-bucketed batches of static shapes."""

from keras_attn.data.dataset import ParallelDataset, teacher_forcing

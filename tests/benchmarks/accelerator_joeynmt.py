"""JoeyNMT 2.3's own model and search, with the interface of `tests.benchmarks.accelerator_peer.Peer`.

Its bridge reads the last states of both directions, so it has 262,144 parameters more than the 13.0 M configuration.
"""

import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from joeynmt.batch import Batch
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary

from tests.benchmarks.joeynmt_peer import ORDER, SPECIAL, configuration
from tests.benchmarks.joeynmt_sizes import EMBEDDING, UNITS


class JoeyNMT:
    """JoeyNMT's recurrent model on a device, with Adam and clipping at 1, as its training manager applies them."""

    def __init__(self, source_vocabulary_size: int, target_vocabulary_size: int, device: str, dtype: str):
        logging.disable(logging.INFO)
        config = configuration(Path(), UNITS, EMBEDDING)
        names = config["data"]["special_symbols"] | {"lang_tags": [], "sep_token": None, "sep_id": None}
        sizes = source_vocabulary_size, target_vocabulary_size
        words = [[f"w{n}" for n in range(size - len(SPECIAL))] for size in sizes]
        vocabularies = [Vocabulary(tokens, SimpleNamespace(**names)) for tokens in words]
        self.model = build_model(config["model"], *vocabularies).to(device)
        self.model.loss_function = "crossentropy", 0.0
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.device = device
        self.autocast = {"device_type": device, "enabled": dtype == "bfloat16", "dtype": torch.bfloat16}

    def _batch(self, source, target=None) -> Batch:
        """Ids of this library (pad 0, unknown 1) as a batch with JoeyNMT's (unknown 0, pad 1), sorted by length."""
        order = np.argsort(-(source != 0).sum(1), kind="stable")

        def ids(rows):
            rows = rows[order].astype("int64")
            return torch.from_numpy(np.where(rows < len(ORDER), np.take(ORDER, rows, mode="clip"), rows)).to(
                self.device
            )

        lengths = torch.from_numpy((source != 0).sum(1)[order]).to(self.device)
        target = None if target is None else ids(target)
        indices = torch.arange(len(source), device=self.device)
        places = {"pad_index": 1, "eos_index": 3, "device": torch.device(self.device)}
        return Batch(ids(source), lengths, None, target, None, indices, is_train=target is not None, **places)

    def update(self, source, target, labels, weights) -> None:
        """One training step on NumPy arrays: ids (B, S), (B, T), (B, T) and weights (B, T)."""
        self.model.train()
        batch = self._batch(source, np.concatenate([target[:, :1], labels], 1))  # start, tokens, end
        with torch.autocast(**self.autocast):
            loss, *_ = self.model(return_type="loss", **vars(batch))
        self.optimizer.zero_grad()
        (loss / batch.ntokens).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def translate(self, source, *, beam: int, steps: int, start_id: int, end_id: int):
        """NumPy ids (B, S) -> JoeyNMT's ids. It has no limit of its own below `steps` tokens."""
        self.model.eval()
        options = {"min_output_length": steps, "autocast": self.autocast}
        found, *_ = search(self.model, self._batch(source), steps, beam, 1.0, **options)
        return found

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

"""The peer of `tests.benchmarks.accelerator`: the 13.0 M configuration in plain PyTorch, as JoeyNMT has it.

A packed bidirectional `nn.GRU`, which is cuDNN's on a CUDA device, and a Python loop over the decoder's steps. It has
the same parameters as `tests.benchmarks.joeynmt_sizes.JoeyNMTSizes`, and works in bfloat16 through `torch.autocast`.
"""

import contextlib

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class PlainPyTorch(nn.Module):
    """BiGRU encoder; GRU decoder with input feeding, additive attention after the step, and an attentional layer.

    Args:
        source_vocabulary_size, target_vocabulary_size: Vocabulary sizes.
        units, embedding_size: H, of each direction and of the decoder, and E.
    """

    def __init__(self, source_vocabulary_size: int, target_vocabulary_size: int, units: int, embedding_size: int):
        super().__init__()
        self.source_embedding = nn.Embedding(source_vocabulary_size, embedding_size)
        self.target_embedding = nn.Embedding(target_vocabulary_size, embedding_size)
        self.encoder = nn.GRU(embedding_size, units, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(units, units)
        self.cell = nn.GRU(embedding_size + units, units, batch_first=True)
        self.key = nn.Linear(2 * units, units, bias=False)
        self.query = nn.Linear(units, units, bias=False)
        self.score = nn.Linear(units, 1, bias=False)
        self.attentional = nn.Linear(3 * units, units)
        self.output = nn.Linear(units, target_vocabulary_size, bias=False)
        self.embedding_dropout, self.dropout = nn.Dropout(0.5), nn.Dropout(0.3)

    def encode(self, source, lengths):
        """Ids (B, S) and lengths (B,) on the CPU -> memory (B, S, 2H), keys (B, S, H), mask (B, S), s_0 (1, B, H)."""
        embedded = self.embedding_dropout(self.source_embedding(source))  # (B, S, E)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        outputs, final = self.encoder(packed)
        memory, _ = pad_packed_sequence(outputs, batch_first=True, total_length=source.shape[1])  # (B, S, 2H)
        mask = torch.arange(source.shape[1], device=source.device) < lengths.to(source.device)[:, None]  # (B, S)
        return memory, self.key(memory), mask, torch.tanh(self.bridge(final[1]))[None]

    def step(self, embedded, fed, state, memory, keys, mask):
        """One decoder step: embedding (B, E), h~ (B, H) and state (1, B, H) -> the next h~ (B, H) and state."""
        inputs = torch.cat([embedded, fed.to(embedded.dtype)], -1)[:, None]  # (B, 1, E + H)
        output, state = self.cell(inputs, state)
        output = output[:, 0]  # (B, H)
        scores = self.score(torch.tanh(keys + self.query(output)[:, None]))[..., 0]  # (B, S)
        alignment = functional.softmax(scores.masked_fill(~mask, -torch.inf), -1)  # (B, S)
        context = (alignment.to(memory.dtype)[:, None] @ memory)[:, 0]  # (B, 2H)
        return self.dropout(torch.tanh(self.attentional(torch.cat([context, output], -1)))), state

    def forward(self, source, lengths, target):
        """Ids (B, S), lengths (B,) on the CPU and decoder ids (B, T) -> logits (B, T, V)."""
        memory, keys, mask, state = self.encode(source, lengths)
        embedded = self.embedding_dropout(self.target_embedding(target))  # (B, T, E)
        fed = memory.new_zeros(len(source), self.query.in_features)  # (B, H)
        steps = []
        for position in range(target.shape[1]):
            fed, state = self.step(embedded[:, position], fed, state, memory, keys, mask)
            steps.append(fed)
        return self.output(torch.stack(steps, 1))

    @torch.no_grad()
    def search(self, source, lengths, beam: int, steps: int, start_id: int, end_id: int):
        """Exactly `steps` tokens for each sentence by beam search, greedily for a beam of 1: ids (B, steps)."""
        memory, keys, mask, state = self.encode(source, lengths)
        batch = len(source)
        memory, keys, mask = (x.repeat_interleave(beam, 0) for x in (memory, keys, mask))
        state = state.repeat_interleave(beam, 1)  # (1, B K, H)
        fed = memory.new_zeros(batch * beam, self.query.in_features)  # (B K, H)
        tokens = torch.full((batch * beam, 1), start_id, device=source.device)
        totals = torch.full((batch, beam), -torch.inf, device=source.device)  # (B, K)
        totals[:, 0] = 0.0
        first = torch.arange(batch, device=source.device)[:, None] * beam  # (B, 1)
        for _ in range(steps):
            fed, state = self.step(self.target_embedding(tokens[:, -1]), fed, state, memory, keys, mask)
            logits = self.output(fed).float()  # (B K, V)
            logits[:, end_id] = -torch.inf
            if beam == 1:
                tokens = torch.cat([tokens, logits.argmax(-1)[:, None]], 1)
                continue
            found = functional.log_softmax(logits, -1).view(batch, beam, -1) + totals[..., None]  # (B, K, V)
            totals, chosen = found.view(batch, -1).topk(beam)  # (B, K)
            rows = (first + chosen // logits.shape[-1]).view(-1)  # (B K,)
            fed, state = fed[rows], state[:, rows]
            tokens = torch.cat([tokens[rows], (chosen % logits.shape[-1]).view(-1, 1)], 1)
        return tokens.view(batch, beam, -1)[:, 0, 1:]


class Peer:
    """A `PlainPyTorch` on a device, with Adam and clipping at 1, in float32 or through autocast in bfloat16."""

    def __init__(self, model: PlainPyTorch, device: str, dtype: str):
        self.model, self.device, self.dtype = model.to(device), device, dtype
        self.optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def precision(self):
        if self.dtype == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device, torch.bfloat16)

    def update(self, source, target, labels, weights) -> None:
        """One training step on NumPy arrays: ids (B, S), (B, T), (B, T) and weights (B, T)."""
        self.model.train()
        lengths = torch.from_numpy((source != 0).sum(1))
        source, target, labels, weights = (
            torch.from_numpy(x).to(self.device) for x in (source, target, labels, weights)
        )
        with self.precision():
            logits = self.model(source, lengths, target)  # (B, T, V)
        losses = functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten().long(), reduction="none")
        self.optimizer.zero_grad()
        ((losses * weights.flatten()).sum() / weights.sum()).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def translate(self, source, **options):
        """NumPy ids (B, S) -> NumPy ids (B, steps), by `PlainPyTorch.search`."""
        self.model.eval()
        lengths = torch.from_numpy((source != 0).sum(1))
        with self.precision():
            return self.model.search(torch.from_numpy(source).to(self.device), lengths, **options).cpu().numpy()

"""Text to token ids in blocks, by processes side by side.

The processes are started with the interpreter and import only what encoding takes. So they start in tenths of a
second, and a script that uses them needs no `if __name__ == "__main__"`. They end when their pipe ends, which it does
whatever ends the process that started them.
"""

import itertools
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_attn.text.special_tokens import BLANKS
from keras_attn.text.text_files import block_lines

if TYPE_CHECKING:
    from keras_attn.text.tokenizer import Tokenizer

_ROOT = Path(__file__).parents[2]


class TextBlock(NamedTuple):
    """Lines of a file, and which of the tokenizers encodes them."""

    text: bytes  # whole lines of UTF-8
    path: Path
    number: int  # lines of the file before it
    tokenizer: int


class TokenBlock(NamedTuple):
    """The ids of the lines of a `TextBlock`, without start and end."""

    token_ids: np.ndarray  # int32 (N,), of all lines
    lengths: np.ndarray  # int32 (lines,)


def encode_lines(lines: Iterable[str], tokenizer: "Tokenizer", threads: int | None = None) -> list[list[int]]:
    """Returns the ids of each line: none for a blank line, although BPE has pieces for blanks.

    Raises:
        ValueError: If `lines` is a single string, or a line is not valid Unicode.
    """
    if isinstance(lines, str):
        raise ValueError("Expected a list of lines. Received: a single str")
    return tokenizer.encode_batch([line if line.strip(BLANKS) else "" for line in lines], threads=threads)


def encode_block(block: TextBlock, tokenizers: Sequence["Tokenizer"]) -> TokenBlock:
    """Returns the ids of a block, which one thread encodes.

    Raises:
        ValueError: If it is invalid UTF-8.
    """
    rows = encode_lines(block_lines(block.text, block.path, block.number), tokenizers[block.tokenizer], threads=1)
    lengths = np.fromiter(map(len, rows), np.int32, count=len(rows))  # (lines,)
    ids = np.fromiter(itertools.chain.from_iterable(rows), np.int32, count=lengths.sum(dtype=np.int64))  # (N,)
    return TokenBlock(ids, lengths)


class Encoders:
    """Encodes blocks in `workers` processes, or in this one if `workers` is 1. Use it in a `with` block."""

    def __init__(self, tokenizers: Sequence["Tokenizer"], workers: int):
        self._tokenizers, self._workers = tokenizers, workers
        self._threads = ThreadPoolExecutor(workers) if workers > 1 else None
        self._idle: queue.SimpleQueue[subprocess.Popen] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen] = []

    def __enter__(self) -> "Encoders":
        return self

    def __exit__(self, *_) -> None:
        for process in self._processes:
            process.kill()  # it has nothing to lose; a thread that waits for it goes on
        if self._threads:
            self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.communicate()

    def encode(self, blocks: Iterable[TextBlock]) -> Iterator[TokenBlock]:
        """Yields the ids of each block, in order, and reads at most two blocks for each process ahead.

        Raises:
            ValueError: If a block is invalid UTF-8, or what `blocks` raises, after what came before it.
            ChildProcessError: If a process was killed.
        """
        if self._threads is None:
            yield from (encode_block(block, self._tokenizers) for block in blocks)
            return
        waiting: deque[Future] = deque()
        blocks, failure = iter(blocks), None
        while failure is None:
            try:
                waiting.append(self._threads.submit(self._ask, next(blocks)))
            except StopIteration:
                break
            except Exception as error:
                failure = error  # an earlier block may have another one, which comes first
            if len(waiting) > 2 * self._workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        if failure is not None:
            raise failure

    def _ask(self, block: TextBlock) -> TokenBlock:
        try:
            process, news = self._idle.get_nowait(), []
        except queue.Empty:  # a thread uses one process at most: there are fewer than `workers`
            process, news = self._start(), [tuple(self._tokenizers)]
        try:
            for value in (*news, block):
                pickle.dump(value, process.stdin, protocol=5)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise ChildProcessError(
                f"Expected a process that encodes text. Received: its end, with status {process.wait()}"
            ) from None
        self._idle.put(process)
        if isinstance(answer, ValueError):
            raise answer
        return answer

    def _start(self) -> subprocess.Popen:
        paths = os.pathsep.join([str(_ROOT), *filter(os.path.isabs, sys.path)])  # -P: not the current folder
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from keras_attn.text.encoding import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
        )
        self._processes.append(process)
        return process


def serve() -> None:
    """Is a process of `Encoders`: reads tokenizers, then blocks from its input; writes the ids of each to its output.

    It ends with its input. The answer to a block that is no UTF-8 is its error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is for the process that asks
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed is no answer
    tokenizers = pickle.load(sys.stdin.buffer)
    while True:
        try:
            block = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = encode_block(block, tokenizers)
        except ValueError as error:
            answer = error
        pickle.dump(answer, output, protocol=5)
        output.flush()

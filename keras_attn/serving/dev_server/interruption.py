"""Runs of a graph that can be stopped: its loops end before their next step.

A TensorFlow session has no call that stops one of its runs. But a run ends when one of its operations fails. So each
run also takes a flag from a queue of its own: the graph itself puts True there when it has the outputs, and False is
put there to stop it.
"""

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_attn.serving.dev_server.stop import Stop

# In the caller's thread: the threads of the session may all be busy.
_AT_ONCE = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
_BRIEFLY = tf.compat.v1.RunOptions(timeout_in_ms=10_000)


class InterruptibleSession:
    """A SavedModel in a session whose runs can be stopped.

    Args:
        directory: The folder of the SavedModel.
        runs: Runs at once; a further one waits. Each has threads of its own, so that none delays another.

    Attributes:
        meta_graph: The SavedModel's `MetaGraphDef`.
    """

    def __init__(self, directory: Path, runs: int):
        config = tf.compat.v1.ConfigProto()
        # With the flag, Grappler takes 4 s for the first run of each signature, and no later run is faster for it.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        for _ in range(runs):
            config.session_inter_op_thread_pool.add()
        with tf.Graph().as_default() as graph:
            self._session = tf.compat.v1.Session(graph=graph, config=config)
            self.meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], str(directory))
            self._number = tf.compat.v1.placeholder(tf.int32, ())  # of the queue that a run has
            self._queues = [tf.queue.FIFOQueue(2, [tf.bool], [()]) for _ in range(runs)]
            self._flag = self._chosen(lambda flags: flags.dequeue())
            self._goes_on = tf.raw_ops.Assert(condition=self._flag, data=[tf.constant("The run was stopped.")])
            self._stop = self._put(tf.constant(False))
            self._left = self._chosen(lambda flags: flags.size())
        self._free = queue.SimpleQueue()
        for number in range(runs):
            self._free.put(number)
            for fetch in (self._stop, self._left, self._flag):  # the first run of each takes long
                self._session.run(fetch, {self._number: number}, options=_AT_ONCE)

    def fetches(self, tensors: dict[str, str]) -> dict[str, Any]:
        """Returns what `run` takes to compute tensors, which are given by their names in the graph."""
        graph = self._session.graph
        found = {key: graph.get_tensor_by_name(name) for key, name in tensors.items()}
        with graph.as_default():
            # Of the data: a control dependency on a function's output may not wait for it.
            is_done = tf.reduce_all([_is_computed(tensor) for tensor in found.values()])
            return {"tensors": found, "flags": (self._put(is_done), self._goes_on)}

    def run(self, fetches: dict[str, Any], feeds: dict[str, Any], stop: Stop) -> dict[str, Any]:
        """Returns the values of the tensors.

        Raises:
            tf.errors.OpError: if an operation fails, or the run is stopped.
        """
        number = self._free.get()
        own = {self._number: number}
        try:
            with stop.calls(lambda: self._session.run(self._stop, own, options=_AT_ONCE)):
                options = tf.compat.v1.RunOptions(inter_op_thread_pool=number)
                return self._session.run(fetches, feeds | own, options=options)["tensors"]
        except tf.errors.CancelledError:
            if stop.is_set:
                raise
            # An operation failed, and the flag that was cancelled with it hides why.
            return self._session.run(fetches["tensors"], feeds, options=_BRIEFLY)
        finally:
            if stop.is_set:
                for _ in range(self._session.run(self._left, own, options=_AT_ONCE)):
                    self._session.run(self._flag, own, options=_AT_ONCE)
            self._free.put(number)

    def _chosen(self, call: Callable[[tf.queue.QueueBase], tf.Tensor]) -> tf.Tensor:
        return tf.switch_case(self._number, [lambda flags=flags: call(flags) for flags in self._queues])

    def _put(self, flag: tf.Tensor) -> tf.Tensor:
        def put(flags):
            with tf.control_dependencies([flags.enqueue(flag)]):
                return tf.constant(True)

        return self._chosen(put)


def _is_computed(tensor: tf.Tensor) -> tf.Tensor:
    """True, in a way that no optimizer of the graph knows before the tensor is computed."""
    if tensor.shape.is_fully_defined():
        tensor = tf.where(tf.equal(tensor, tensor))
    return tf.size(tensor) >= 0

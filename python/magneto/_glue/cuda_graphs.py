"""Streams and memory for captures of compiled graphs into CUDA graphs, called by the C core."""

import contextlib
import threading
import warnings
from typing import Any

import torch

# A device, a stream's address, and whether PyTorch's own captures take the memory: they alone tell its host
# allocator of a pool. Graphs for one stream share memory: no two of them run at a time.
_Place = tuple[int, int, bool]

_busy = threading.Lock()  # one capture at a time: they share a stream
_streams: dict[tuple[int, int], torch.cuda.Stream] = {}
_pools: dict[_Place, Any] = {}  # PyTorch's handles
_uses: dict[tuple[int, int], int] = {}  # captures that hold memory of a pool


class _Capture:
    """What was current before a capture, and the pool that it took memory from."""

    def __init__(self, device: int, own: bool, random: bool) -> None:
        self.before = torch.cuda.current_stream(device)
        stream = (device, self.before.cuda_stream)
        if stream not in _streams:
            _streams[stream] = torch.cuda.Stream(device)
        self.place = (*stream, random)
        if not own and self.place not in _pools:
            _pools[self.place] = torch.cuda.graph_pool_handle()
        self.device, self.pool = device, torch.cuda.graph_pool_handle() if own else _pools[self.place]
        self.stream = _streams[stream]
        self.stream.wait_stream(self.before)
        # Only PyTorch's own captures let its generator draw.
        self.graph = torch.cuda.CUDAGraph(keep_graph=True) if random else None
        self.failed = False
        torch.cuda.set_stream(self.stream)
        try:
            if self.graph:
                self.graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            else:
                torch._C._cuda_beginAllocateCurrentThreadToPool(device, self.pool)
        except BaseException:
            if self.graph:
                self._abandon()
            self._back()
            raise
        _uses[self.pool] = _uses.get(self.pool, 0) + 1

    def end(self) -> int | None:
        """Goes back to the stream before. The address of PyTorch's graph, if it was one and did not fail."""
        if not self.graph:
            self._back()
            torch._C._cuda_endAllocateToPool(self.device, self.pool)
            return None
        try:
            self.graph.capture_end()
            return self.graph.raw_cuda_graph()
        except RuntimeError:
            self.failed = True
            with contextlib.suppress(RuntimeError):  # versions differ in how far they came
                torch._C._cuda_endAllocateToPool(self.device, self.pool)
            self._reset_generator()
            raise
        finally:
            self._back()

    def _back(self) -> None:
        torch.cuda.set_stream(self.before)
        self.before.wait_stream(self.stream)

    def _abandon(self) -> None:
        """A capture that could not begin leaves nothing behind."""
        with contextlib.suppress(RuntimeError):  # it may have come that far
            torch._C._cuda_endAllocateToPool(self.device, self.pool)
            torch._C._cuda_releasePool(self.device, self.pool)
        self._reset_generator()

    def _reset_generator(self) -> None:
        """PyTorch's generator still believes in a capture that failed; one that succeeds ends that."""
        graph, one = torch.cuda.CUDAGraph(), torch.empty(1, device=self.stream.device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph.capture_begin(capture_error_mode="thread_local")
            one.zero_()
            graph.capture_end()

    def drop(self) -> None:
        if self.graph and not self.failed:
            self.graph.reset()
        else:
            torch._C._cuda_releasePool(self.device, self.pool)
        _uses[self.pool] -= 1
        if not _uses[self.pool]:  # PyTorch takes no pool up again that nobody used
            del _uses[self.pool]
            if _pools.get(self.place) == self.pool:
                del _pools[self.place]


def begin(device: int, own: bool, random: bool) -> _Capture | None:
    """Makes another stream current and takes memory from a pool. None while another thread captures.

    own: the pool is for this capture alone.
    random: the stream is captured from here on, and PyTorch's generator with it.
    """
    if not _busy.acquire(blocking=False):
        return None
    try:
        return _Capture(device, own, random)
    except BaseException:
        _busy.release()
        raise


def end(capture: _Capture) -> int | None:
    """Goes back to the stream before. The address of the graph that PyTorch captured, if it did."""
    try:
        return capture.end()
    finally:
        _busy.release()


def drop(capture: _Capture) -> None:
    """Gives the capture's share of the pool back; its tensors are gone already."""
    capture.drop()

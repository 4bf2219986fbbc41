"""Streams and memory for captures of compiled graphs into CUDA graphs, called by the C core."""

import threading

import torch

# A device and a stream's address. Graphs for one stream share memory: no two of them run at a time.
_Place = tuple[int, int]

_busy = threading.Lock()  # one capture at a time: they share a stream
_streams: dict[_Place, torch.cuda.Stream] = {}
_pools: dict[_Place, tuple[int, int]] = {}
_uses: dict[tuple[int, int], int] = {}  # captures that hold memory of a pool


class _Capture:
    """What was current before a capture, and the pool that it took memory from."""

    def __init__(self, device: int, own: bool) -> None:
        self.before = torch.cuda.current_stream(device)
        self.place = (device, self.before.cuda_stream)
        if self.place not in _streams:
            _streams[self.place] = torch.cuda.Stream(device)
        if not own and self.place not in _pools:
            _pools[self.place] = torch.cuda.graph_pool_handle()
        self.device, self.pool = device, torch.cuda.graph_pool_handle() if own else _pools[self.place]
        self.stream = _streams[self.place]
        self.stream.wait_stream(self.before)
        torch._C._cuda_beginAllocateCurrentThreadToPool(device, self.pool)
        _uses[self.pool] = _uses.get(self.pool, 0) + 1
        torch.cuda.set_stream(self.stream)

    def end(self) -> None:
        torch.cuda.set_stream(self.before)
        torch._C._cuda_endAllocateToPool(self.device, self.pool)
        self.before.wait_stream(self.stream)

    def drop(self) -> None:
        torch._C._cuda_releasePool(self.device, self.pool)
        _uses[self.pool] -= 1
        if not _uses[self.pool]:  # PyTorch takes no pool up again that nobody used
            del _uses[self.pool]
            if _pools.get(self.place) == self.pool:
                del _pools[self.place]


def begin(device: int, own: bool) -> _Capture | None:
    """Makes another stream current and takes memory from a pool. None while another thread captures.

    own: the pool is for this capture alone.
    """
    if not _busy.acquire(blocking=False):
        return None
    try:
        return _Capture(device, own)
    except BaseException:
        _busy.release()
        raise


def end(capture: _Capture) -> None:
    """Goes back to the stream before."""
    try:
        capture.end()
    finally:
        _busy.release()


def drop(capture: _Capture) -> None:
    """Gives the capture's share of the pool back; its tensors are gone already."""
    capture.drop()

"""Types of the C core.  The parts of the module are listed in src/api/parts.def."""

from collections.abc import Callable as _Function
from types import CodeType
from typing import Any, TypedDict, overload

from torch import Tensor
from torch.fx import GraphModule

class _Stats(TypedDict):
    graphs: int
    joint_graphs: int
    entries: int
    recompiles: int
    hits: int
    misses: int
    fallbacks: int
    attempts: int
    bytecodes: int
    left: int
    stopped: int
    inferred: int
    verified: int
    differed: int
    record_ms: float
    compile_ms: float
    breaks: dict[str, int]  # by the name of the reason
    cuda_captures: int
    cuda_replays: int
    cuda_failed: int

_Entry = TypedDict(
    "_Entry",
    {
        "code": CodeType,
        "config": int,
        "unit": int,
        "end": int,
        "line": int,
        "end_line": int,
        "end_file": str,
        "end_name": str,
        "plain": int,
        "returns": bool,
        "break": str | None,  # None: the segment returns
        "reason": str,
        "nodes": int,
        "hits": int,
        "guards": str,
        "number": int,
        "measured": dict[str, Any] | None,
        "graph": GraphModule | str | None,  # a text says why the graph cannot be shown
    },
)

class _Left(TypedDict):
    code: CodeType
    config: int
    compiled_ms: float
    eager_ms: float
    wait: int

class _Machine(TypedDict):
    vector_bytes: int
    threads: int
    openmp: bool
    tensor_layout: bool
    wrap: bool
    profiler: bool
    abi_error: str | None
    llvm_error: str | None
    onednn_error: str | None
    llvm_library: str | None
    cpu: str | None
    cpu_cap: str | None
    cpu_host: str

class _DiskCache(TypedDict):
    folder: str
    off: str | None  # why the cache is off
    files: int
    temporaries: int
    not_allowed: int
    bytes: int
    limit: int
    loaded: int
    stored: int
    damaged: int
    refused: int
    removed: int

class _KernelCache(TypedDict):
    kernels: int
    objects: int
    bytes: int
    hits: int
    misses: int
    plans_loaded: int
    plans_saved: int

_Variable = tuple[str, str, str, str, str, str | None, str | None]

class Callable:
    """A function, compiled when it is first called."""

    __wrapped__: Any  # read-only: the callable that was given
    config_id: int  # read-only: equal options have one number, and share what they compiled
    def __init__(
        self,
        fn: _Function[..., Any],
        *,
        backend: _Function[..., Any] | None = None,
        fullgraph: bool = False,
        dynamic: int = -1,
        disable: bool = False,
        eager_backend: bool = False,
        freeze: bool = False,
        keep_layout: bool = False,
        threads: int = 0,
        recompile_limit: int = 0,
        isolated: bool = False,
        explained: bool = False,
        verify: int = 0,
        verify_every: int = 0,
        numerics: int = 0,
        search: bool = False,
        plain: _Function[..., Any] | None = None,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any: ...
    def options(self) -> dict[str, Any]: ...

class Graph:
    """A compiled graph text."""

    def __init__(
        self,
        text: str,
        dump: bool = False,
        freeze: bool = False,
        keep_layout: bool = False,
        threads: int = 0,
    ) -> None: ...
    def run(self, *tensors: Tensor) -> tuple[Any, ...]: ...
    def info(self) -> dict[str, int]: ...
    def dump(self, stage: str, /) -> str: ...

class Joint:
    """A compiled joint graph text: a forward and a backward pass."""

    def __init__(
        self,
        text: str,
        nprimal: int,
        nfwd: int,
        backward: int = 0,
        keep_layout: bool = False,
        threads: int = 0,
    ) -> None: ...
    def forward(self, *primals: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]: ...
    def backward(self, *saved_and_tangents: Tensor) -> tuple[Tensor, ...]: ...
    def info(self) -> dict[str, Any]: ...

class GraphBreak(BaseException):
    """Ends a recording.  No Exception, so that programs do not catch it."""

break_hints: dict[str, str]  # by the name of the reason
stances: list[str]

# What programs call.
def graph_break(reason: str = "graph_break()", /) -> None: ...

# Marks and switches.
def call_uncompiled(fn: _Function[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any: ...
def call_holding(
    hold: bool, fn: _Function[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
) -> Any: ...
@overload
def set_stance(name: str, /) -> tuple[Any, ...]: ...
@overload
def set_stance(name: str, backend: _Function[..., Any] | None, /) -> tuple[Any, ...]: ...
def substitute(original: _Function[..., Any], replacement: _Function[..., Any], /) -> None: ...
def set_logs(spec: str, /) -> None: ...

# Branches and loops, while they are recorded.
def emit(op: str, args: tuple[Any, ...], part: Any, /) -> list[Tensor]: ...
def emit_gradients(op: str, args: tuple[Any, ...], xs: list[Tensor], need: list[int], /) -> list[Tensor]: ...

# What was compiled.
def reset() -> None: ...
def stats() -> _Stats: ...
def retries() -> dict[str, int]: ...
def entries() -> list[_Entry]: ...
def left() -> list[_Left]: ...
def set_passes(limit: int, /) -> list[str]: ...
def feed_trials(
    recorded: float = ...,
    compiled: float = ...,
    eager: float = ...,
    recorded_cpu: float = ...,
    eager_cpu: float = ...,
    /,
) -> tuple[float, ...]: ...  # for tests
def plant(name: str | None, crash: bool = False, /) -> None: ...  # for tests
def plant_illegal(name: str | None, what: str = "order", /) -> None: ...  # for tests
def kernel_cache_info() -> _KernelCache: ...
def kernel_cache_clear() -> None: ...
def disk_cache_info() -> _DiskCache: ...

# Reports.
def measure(on: bool, /) -> bool: ...
def report_data() -> dict[str, Any]: ...
def roofline() -> dict[str, float]: ...
def assembly(text: str, /) -> str: ...

# This machine.
def machine(onednn_path: str | None, /) -> _Machine: ...
def llvm_info() -> dict[str, str] | str: ...  # a text says why there is none
def environment() -> tuple[_Variable, ...]: ...
def notices() -> list[str]: ...

# For tests and benchmarks.
def bytecode(number: int, /) -> str | None: ...
def guard_time(
    fn: _Function[..., Any], args: tuple[Any, ...], n: int, graph_n: int = 0, /
) -> list[dict[str, Any]]: ...
def record_run(f: _Function[..., Any], tensors: list[Tensor], fx: bool = False, /) -> dict[str, Any]: ...
def force_break(k: int, inner: bool = False, /) -> None: ...
def fail_allocation(n: int, /) -> int: ...

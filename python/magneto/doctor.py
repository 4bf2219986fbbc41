"""``python -m magneto.doctor``: what was found on this machine, and how to mend what is missing.

Exit status: 0 when magneto can compile for the CPU, 1 when it can only run eagerly.
"""

from __future__ import annotations

import pathlib
import platform
import shutil
import subprocess
import sys
import sysconfig
from typing import NamedTuple

import torch

from . import __version__, _interpreter, _magneto


class Finding(NamedTuple):
    """One line of the report."""

    name: str
    ok: bool
    text: str
    mend: str = ""  # command or advice, when not ok
    needed: bool = True  # without it nothing is compiled


def onednn_library() -> str | None:
    """The shared library that the pip package onednn-cpu-gomp installs, if it is there."""
    roots = [sys.prefix, sysconfig.get_paths()["platlib"], *sys.path]
    for root in map(pathlib.Path, roots):
        for pattern in ("lib/libdnnl.so.3", "libdnnl.so.3", "onednn*/lib/libdnnl.so.3"):
            for path in root.glob(pattern):
                return str(path)
    return None


def _gpu() -> Finding:
    smi = shutil.which("nvidia-smi")
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
        return Finding(
            "GPU",
            True,
            f"{name}, torch with CUDA {torch.version.cuda} (graphs with CUDA tensors run op by op)",
            needed=False,
        )
    if smi:
        seen = subprocess.run(
            [smi, "-L"], capture_output=True, text=True, timeout=30, check=False
        ).stdout.strip()
        if seen:
            return Finding(
                "GPU",
                False,
                f"{seen.splitlines()[0]}, but this torch ({torch.__version__}) cannot use it",
                "install a CUDA build of torch: https://pytorch.org/get-started/locally",
                needed=False,
            )
    return Finding("GPU", True, "none (the CPU is used)", needed=False)


def _cpu(m: _magneto._Machine) -> Finding:
    text = m["cpu_host"]
    if m["cpu_cap"]:
        text += f", capped to {m['cpu_cap']} by MAGNETO_CPU"
    elif _value("MAGNETO_CPU"):
        text += f"; MAGNETO_CPU={_value('MAGNETO_CPU')} changes nothing"
    return Finding("CPU level", True, text, needed=False)


def _cache() -> Finding:
    c = _magneto.disk_cache_info()
    if c["off"] and "switched off" in c["off"]:
        return Finding("cache", True, c["off"], needed=False)
    if c["off"]:
        mend = f"mkdir -p {c['folder']}; chmod 700 {c['folder']}   (or set MAGNETO_CACHE_DIR)"
        return Finding("cache", False, c["off"], mend, needed=False)
    text = f"{c['folder']}: {c['files']} files, {c['bytes'] / 2**20:.1f} of {c['limit'] / 2**20:.0f} MiB"
    if c["temporaries"]:
        text += f", {c['temporaries']} unfinished"
    if c["not_allowed"]:
        mend = f"rm {c['folder']}/*.o {c['folder']}/*.plan   (others may have written some of them)"
        return Finding("cache", False, f"{text}, {c['not_allowed']} that may not be used", mend, needed=False)
    return Finding("cache", True, text, needed=False)


def _value(name: str) -> str:
    return {v.name: v.value or "" for v in variables()}[name]


class Variable(NamedTuple):
    """A row of src/env.def, and what the environment says."""

    name: str
    kind: str
    accepted: str
    default: str
    meaning: str
    value: str | None
    wrong: str | None


def variables() -> list[Variable]:
    """The environment variables that magneto reads.

    Returns:
        One row each, in the order of docs/environment.md.

    Raises:
        Nothing.

    Example:
        >>> from magneto import doctor
        >>> [v.default for v in doctor.variables() if v.name == "MAGNETO_STRICT"]
        ['0']
    """
    return [Variable(*v) for v in _magneto.environment()]


def table() -> str:
    """The variables as a table in Markdown (docs/environment.md)."""
    lines = ["| variable | accepted | by default | meaning |", "| --- | --- | --- | --- |"]
    kinds = {
        "switch": "1, 0",
        "number": "a number, {} to {}",
        "span": "n, a-b",
        "path": "a path",
        "tests": "",
        "word": "",
        "words": "",
    }
    for v in variables():
        words = v.accepted.split()
        text = kinds[v.kind].format(*words)
        if v.kind in ("word", "words", "path"):
            text = ", ".join([text] * bool(text) + [f"`{w}`" for w in words])
        lines.append(f"| `{v.name}` | {text} | {v.default} | {v.meaning} |")
    return "\n".join(lines)


def _environment() -> list[Finding]:
    right = [v for v in variables() if v.value and not v.wrong]
    found = [Finding("environment", True, f"{v.name}={v.value}", needed=False) for v in right]
    off = _magneto.disk_cache_info()["off"] or "\n"  # has a line of its own
    notices = [text for text in _magneto.notices() if off not in text]
    told = [Finding("noticed", False, text, "see docs/environment.md", needed=False) for text in notices]
    return found + told


def _libraries(m: _magneto._Machine) -> list[Finding]:
    """What makes kernels, and what runs products and threads."""
    return [
        Finding(
            "LLVM",
            not m["llvm_error"],
            m["llvm_error"] or f"{m['llvm_library']} for {m['cpu']}",
            "pip install 'llvmlite>=0.48'",
        ),
        Finding(
            "vector width",
            m["vector_bytes"] > 0,
            f"{m['vector_bytes'] * 8} bits" if m["vector_bytes"] else "unknown without LLVM",
            "pip install 'llvmlite>=0.48'",
        ),
        Finding(
            "oneDNN",
            not m["onednn_error"],
            m["onednn_error"] or "libdnnl loaded",
            "pip install onednn-cpu-gomp   (optional: faster matrix products and convolutions)",
            needed=False,
        ),
        Finding(
            "OpenMP",
            m["openmp"],
            "the runtime that torch loaded" if m["openmp"] else "torch has no GNU OpenMP runtime",
            "use a torch built with OpenMP (kernels run on one thread)",
            needed=False,
        ),
    ]


def examine() -> list[Finding]:
    """Looks at everything that magneto uses; loads the libraries to be sure that they work.

    Returns:
        The lines of the report.

    Raises:
        Nothing: what is missing is a finding.

    Example:
        >>> from magneto import doctor
        >>> [f.ok for f in doctor.examine() if f.name == "torch"]
        [True]
    """
    python = f"{platform.python_implementation()} {platform.python_version()}"
    out = [
        Finding("magneto", True, __version__),
        Finding("Python", not _interpreter.UNKNOWN, _interpreter.UNKNOWN or python, _interpreter.ADVICE),
        Finding(
            "torch",
            _interpreter.torch_is_tested(),
            torch.__version__,
            _interpreter.TORCH_ADVICE,
            needed=False,
        ),
    ]
    if _interpreter.UNKNOWN:
        return out  # there is no core that could look at the rest
    m = _magneto.machine(onednn_library())
    out += [
        Finding(
            "torch C ABI",
            not m["abi_error"],
            m["abi_error"] or "all functions found",
            _interpreter.TORCH_ADVICE,
        ),
        Finding(
            "tensor layout",
            m["tensor_layout"] and m["wrap"],
            "as expected" if m["tensor_layout"] else "unknown in this build of torch",
            f"{_interpreter.TORCH_ADVICE} (a build from pytorch.org)",
        ),
        Finding(
            "torch.profiler",
            m["profiler"],
            "compiled calls are shown"
            if m["profiler"]
            else "compiled calls are not shown: this torch lacks the functions",
            "pip install 'torch>=2.13,<2.16'   (optional: what compiled calls do, under torch.profiler)",
            needed=False,
        ),
        *_libraries(m),
        Finding("threads", True, f"{m['threads']} (torch.get_num_threads())"),
        _cpu(m),
        _gpu(),
        _cache(),
    ]
    return out + _environment()  # last: looking at the libraries is what brings up wrong paths


def main() -> int:
    """Prints the report.

    Returns:
        The exit status: 0 if magneto can compile, else 1.

    Raises:
        Nothing: what is missing is in the report.
    """
    findings = examine()
    width = max(len(f.name) for f in findings)
    for f in findings:
        mark = "ok     " if f.ok else "MISSING" if f.needed else "without"
        print(f"{f.name:<{width}}  {mark}  {f.text}")
        if not f.ok and f.mend:
            print(f"{'':<{width}}           -> {f.mend}")
    broken = [f.name for f in findings if f.needed and not f.ok]
    print(
        f"\nEverything runs eagerly until this is mended: {', '.join(broken)}."
        if broken
        else "\nmagneto can compile."
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

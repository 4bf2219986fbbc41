"""Makes a failing program smaller, as long as it fails in the same way."""

import re
import time


def smaller(program):
    """Programs with a bit less, largest steps first."""
    if len(program.calls) > 1:
        for k in range(len(program.calls)):
            yield program.copy(calls=[program.calls[k]])
        for k in range(len(program.calls)):
            yield program.copy(calls=program.calls[:k] + program.calls[k + 1 :])
    if len(program.result) > 1:
        for k in range(len(program.result)):
            yield program.copy(result=[program.result[k]])
    used = {
        int(n)
        for line in [*program.body, *program.result, *program.inputs]
        for n in re.findall(r"\bx(\d+)\b", line)
    }
    for k in range(len(program.inputs) - 1, 0, -1):
        if k not in used and k == len(program.inputs) - 1:
            yield program.copy(inputs=program.inputs[:k], grads=program.grads[:k])
    n = len(program.body)
    size = n // 2
    while size >= 1:
        for at in range(0, n, size):
            yield program.copy(body=program.body[:at] + program.body[at + size :] or ["pass"])
        size //= 2
    for k, statement in enumerate(program.body):
        for text in simpler(statement):
            yield program.copy(body=[*program.body[:k], text, *program.body[k + 1 :]])
    text = "\n".join(program.body)
    kept = [line for line in program.init if line.split(" = ")[0] + "(" in text]
    if len(kept) < len(program.init):
        yield program.copy(init=kept)
    if any(program.grads):
        yield program.copy(grads=[False] * len(program.grads))
        for k, g in enumerate(program.grads):
            if g:
                yield program.copy(grads=[*program.grads[:k], False, *program.grads[k + 1 :]])
    for mode in {"enable_grad": ["no_grad"], "inference_mode": ["no_grad"]}.get(program.mode, []):
        yield program.copy(mode=mode)
    if program.dynamic is not None:
        yield program.copy(dynamic=None)
    for k, text in enumerate(program.inputs):
        for new in simpler_input(text):
            yield program.copy(inputs=[*program.inputs[:k], new, *program.inputs[k + 1 :]])
    for k, call in enumerate(program.calls):
        for name in call:
            for v in (2, 1):
                if call[name] > v:
                    yield program.copy(calls=[*program.calls[:k], {**call, name: v}, *program.calls[k + 1 :]])


def simpler(statement):
    lines = statement.splitlines()
    if len(lines) > 1:
        for line in lines:
            if line.startswith("    ") and " = " in line:
                yield line.strip()
            elif re.match(r"v\d+ = ", line):
                yield line
    m = re.match(r"(v\d+) = (.*)$", statement)
    if m and len(lines) == 1:
        for name in dict.fromkeys(re.findall(r"\b[xv]\d+(?:\[\d+\])?", m[2])):
            if name != m[2]:
                yield f"{m[1]} = {name}"
        inner = re.match(r"(\w+) = \(lambda a: (.*)\)\((\w+)\)$", statement)
        if inner:
            yield f"{inner[1]} = {inner[2]}"


def simpler_input(text):
    if not text.startswith("x"):
        for old in (".mul(50)", ".mul(2).round()", ".contiguous(memory_format=torch.channels_last)"):
            if old in text:
                yield text.replace(old, "")
        for old in (".to(F64)", ".to(BF16)", ".to(F16)"):
            if old in text:
                yield text.replace(old, ".to(F32)")
        for name, value in (("N", "2"), ("M", "2"), ("5", "2"), ("4", "2"), ("3", "2")):
            new = re.sub(rf"\b{name}\b", value, text)
            if new != text:
                yield new


def shrink(program, fails, seconds=60.0, smaller=smaller):
    """fails(program): the kind of failure, or None.  The smallest program found that fails as the first does.

    smaller(program): the candidates, which are tried in that order."""
    end, kind = time.monotonic() + seconds, fails(program)
    if kind is None:
        return program
    progress = True
    while progress:
        progress = False
        for candidate in smaller(program):
            if time.monotonic() > end:
                return program
            if fails(candidate) == kind:
                program, progress = candidate, True
                break
    return program

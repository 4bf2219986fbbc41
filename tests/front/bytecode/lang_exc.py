"""Exceptions: raised, caught, chained, in groups, through generators and with statements.  Every program is one graph unless its decorator says otherwise."""

import contextlib
import functools

import torch

from lang_registry import prog


class MyErr(Exception):
    pass


class MyErr2(MyErr):
    def __init__(self, a, b=2):
        super().__init__(a, b)
        self.a = a
        self.b = b


class BaseErr(BaseException):
    pass


@prog
def exc_basic(x):
    try:
        raise ValueError("a")
    except ValueError:
        return x + 1


@prog
def exc_user(x):
    try:
        raise MyErr2(x, 3)
    except MyErr as e:
        return e.a * e.b


@prog
def exc_args(x):
    try:
        raise ValueError(x, 2)
    except ValueError as e:
        return e.args[0] * e.args[1]


@prog
def exc_else(x):
    try:
        y = x + 1
    except ValueError:
        y = x
    else:
        y = y * 2
    finally:
        y = y - 1
    return y


@prog
def exc_finally_return(x):
    def f():
        try:
            raise ValueError
        finally:
            return x + 1

    return f()


@prog
def exc_nested(x):
    try:
        try:
            raise ValueError("inner")
        except KeyError:
            return x
        finally:
            x = x * 2
    except ValueError:
        return x + 1


@prog
def exc_reraise(x):
    try:
        try:
            raise ValueError("inner")
        except ValueError:
            x = x * 3
            raise
    except ValueError as e:
        return x + len(str(e))


@prog
def exc_chain_from(x):
    try:
        try:
            raise ValueError("a")
        except ValueError as e:
            raise KeyError("b") from e
    except KeyError as e:
        return x + isinstance(e.__cause__, ValueError) + (e.__cause__ is e.__context__)


@prog
def exc_context(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            raise KeyError("b")
    except KeyError as e:
        return x + isinstance(e.__context__, ValueError) + (e.__cause__ is None) + e.__suppress_context__


@prog
def exc_from_none(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            raise KeyError("b") from None
    except KeyError as e:
        return x + e.__suppress_context__ + (e.__cause__ is None)


@prog
def exc_inlined(x):
    def g(n):
        if n > 1:
            raise MyErr("x")
        return n

    for i in range(4):
        try:
            x = x + g(i)
        except MyErr:
            x = x * 2
    return x


@prog
def exc_tuple(x):
    try:
        {}["a"]
    except (ValueError, KeyError) as e:
        return x + 1, repr(e)


@prog
def exc_index(x):
    try:
        [1][4]
    except IndexError as e:
        return x + 1, str(e)


@prog
def exc_attr(x):
    try:
        x.nothing_here
    except AttributeError as e:
        return x + 1


@prog
def exc_attr_obj(x):
    class A:
        pass

    try:
        A().foo
    except AttributeError as e:
        return x + 1, str(e)


@prog
def exc_type(x):
    try:
        1 + "a"
    except TypeError as e:
        return x + 1, str(e)


@prog
def exc_zero(x):
    try:
        1 // 0
    except ZeroDivisionError as e:
        return x + 1, e.args


@prog
def exc_name(x):
    try:
        undefined_thing
    except NameError as e:
        return x + 1, str(e)


@prog
def exc_unbound(x):
    try:
        y  # noqa: F821  read before it is assigned
        y = 1
    except UnboundLocalError as e:
        return x + 1, str(e)


@prog
def exc_stopiter(x):
    it = iter([1])
    next(it)
    try:
        next(it)
    except StopIteration:
        return x + 1


@prog
def exc_assert(x):
    try:
        assert x.shape[0] == 100, "bad shape"
    except AssertionError as e:
        return x + 1, str(e)


@prog
def assert_true(x):
    assert x.shape[0] == 3, f"{x.shape}"
    assert isinstance(x, torch.Tensor)
    return x + 1


@prog
def exc_torch_error(x):
    try:
        torch.cat([x, x.unsqueeze(0)])
    except Exception as e:
        return x + 1


@prog
def exc_torch_shape(x):
    try:
        return x @ x
    except RuntimeError as e:
        return x + 1


@prog
def exc_notimpl(x):
    class A:
        def __add__(self, o):
            return NotImplemented

    try:
        A() + 1
    except TypeError as e:
        return x + 1, str(e)


@prog
def exc_with_traceback(x):
    try:
        raise ValueError("a").with_traceback(None)
    except ValueError as e:
        return x + 1


@prog
def exc_add_note(x):
    try:
        e = ValueError("a")
        e.add_note("note")
        raise e
    except ValueError as e:
        return x + len(e.__notes__)


@prog
def exc_var_deleted(x):
    e = 1
    try:
        raise ValueError
    except ValueError as e:
        pass
    try:
        e
    except UnboundLocalError:
        return x + 1


@prog
def exc_group(x):
    try:
        raise ExceptionGroup("g", [ValueError("a"), TypeError("b")])
    except* ValueError as eg:
        x = x + len(eg.exceptions)
    except* TypeError as eg:
        x = x * 2
    return x


@prog
def exc_group_naked(x):
    try:
        raise ValueError("a")
    except* ValueError as eg:
        x = x + len(eg.exceptions)
    return x


@prog
def exc_group_none(x):
    try:
        x = x + 1
    except* ValueError as eg:
        x = x + len(eg.exceptions)
    else:
        x = x * 2
    return x


@prog
def exc_group_rest(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError("a"), TypeError("b")])
        except* ValueError as eg:
            x = x + 1
    except ExceptionGroup as g:
        x = x * len(g.exceptions)
    return x


@prog
def exc_group_raise_in(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError("a"), TypeError("b")])
        except* ValueError as eg:
            raise KeyError("z")
    except ExceptionGroup as g:
        x = x * len(g.exceptions)
    return x


@prog
def exc_baseexc(x):
    try:
        raise BaseErr("q")
    except BaseException as e:
        return x + 1


@prog
def exc_bare(x):
    try:
        raise MyErr
    except:
        return x + 1


@prog
def exc_loop_continue(x):
    for i in range(4):
        try:
            if i % 2:
                raise MyErr
            x = x + i
        except MyErr:
            continue
        finally:
            x = x * 1.5
    return x


@prog
def exc_loop_break(x):
    for i in range(4):
        try:
            if i == 2:
                break
        finally:
            x = x + i
    else:
        x = x * 100
    return x


@prog
def exc_in_handler(x):
    def h():
        try:
            raise ValueError("a")
        except ValueError:
            try:
                raise KeyError("b")
            except KeyError as k:
                return k.__context__

    e = h()
    return x + isinstance(e, ValueError)


@prog
def exc_sysexcinfo(x):
    import sys

    try:
        raise ValueError("a")
    except ValueError:
        t, v, tb = sys.exc_info()
        return x + (t is ValueError)


@prog
def exc_object_kept(x):
    errs = []
    for c in (ValueError, KeyError):
        try:
            raise c("m")
        except Exception as e:
            errs.append(e)
    return x + len(errs), [type(e).__name__ for e in errs]


@prog
def exc_return_exc(x):
    e = ValueError("a", 1)
    return x + 1, e.args, isinstance(e, Exception)


@prog
def exc_create_return(x):
    return x + 1, ValueError("a")


@prog
def exc_setattr(x):
    e = MyErr("a")
    e.payload = x * 2
    try:
        raise e
    except MyErr as f:
        return f.payload


@prog
def exc_custom_str(x):
    class E(Exception):
        def __str__(self):
            return "custom"

    try:
        raise E("a")
    except E as e:
        return x + len(str(e)), f"{e}"


@prog
def exc_class_attr(x):
    class E(Exception):
        code = 7

        def __init__(self, msg, *, k=1):
            super().__init__(msg)
            self.k = k

    try:
        raise E("m", k=4)
    except E as e:
        return x * e.code + e.k


@prog
def exc_user_iter(x):
    class It:
        def __init__(self):
            self.i = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.i += 1
            if self.i > 3:
                raise StopIteration
            return x * self.i

    return [t for t in It()]


@prog
def exc_getitem_protocol(x):
    class S:
        def __getitem__(self, i):
            if i > 2:
                raise IndexError
            return x + i

    return [t for t in S()], len(list(S()))


@prog
def exc_getattr_fallback(x):
    class A:
        def __getattr__(self, n):
            if n == "foo":
                return 5
            raise AttributeError(n)

    a = A()
    return x + a.foo + getattr(a, "bar", 2) + hasattr(a, "zip")


@prog
def exc_keyerror_missing(x):
    d = {"a": 1}
    try:
        return x * d["b"]
    except KeyError as e:
        return x * d["a"], e.args[0]


@prog
def exc_raise_class_with_cause(x):
    try:
        raise ValueError from TypeError
    except ValueError as e:
        return x + isinstance(e.__cause__, TypeError)


@prog
def exc_raise_nonexc(x):
    try:
        raise 3  # noqa: B016  is a TypeError
    except TypeError as e:
        return x + 1, str(e)


@prog
def exc_raise_none_active(x):
    try:
        raise
    except RuntimeError as e:
        return x + 1, str(e)


def _thrower(x):
    raise MyErr2(x, 5)


@prog(None, graphs=1, breaks=1)
def exc_leaves2(x):
    y = x + 1
    raise MyErr("bye")


@prog
def exc_from_callee_tensor(x):
    try:
        _thrower(x + 1)
    except MyErr2 as e:
        return e.a * 2


@prog(None, graphs=None, breaks=None)
def exc_handler_print(x):
    try:
        y = x + 1
        raise ValueError("a")
    except ValueError as e:
        print("handler", e)
        y = y * 2
    return y


@prog(None, graphs=None, breaks=None)
def exc_item(x):
    try:
        if x.sum() > 0:
            raise ValueError("pos")
        y = x - 1
    except ValueError:
        y = x + 1
    finally:
        y = y * 2
    return y


@prog
def exc_decorated(x):
    def safe(f):
        @functools.wraps(f)
        def w(*a, **k):
            try:
                return f(*a, **k)
            except MyErr as e:
                return e.args[0]

        return w

    @safe
    def g(t):
        raise MyErr(t * 2)

    return g(x)


@prog
def exc_ctx_suppress(x):
    with contextlib.suppress(ValueError):
        raise ValueError
    return x + 1


@prog
def exc_ctx_swallow(x):
    class CM:
        def __enter__(self):
            return self

        def __exit__(self, t, v, tb):
            self.t = t
            return True

    with CM() as c:
        raise ValueError
    return x + (c.t is ValueError)


@prog
def exc_ctx_noswallow(x):
    log = []

    class CM:
        def __enter__(self):
            return self

        def __exit__(self, t, v, tb):
            log.append(t.__name__)
            return False

    try:
        with CM():
            raise ValueError
    except ValueError:
        x = x + 1
    return x, log


@prog
def exc_ctx_raise_in_exit(x):
    class CM:
        def __enter__(self):
            return self

        def __exit__(self, t, v, tb):
            raise KeyError("exit")

    try:
        with CM():
            raise ValueError
    except KeyError as e:
        return x + isinstance(e.__context__, ValueError)


@prog
def exc_clear_frames(x):
    """What unittest's assertRaises does: the frames of a traceback forget their locals."""

    def inner(y):
        z = y + 1
        if z.shape:
            raise KeyError(z)

    def steps(y):
        try:
            yield y
            inner(y)
        finally:
            log.append("end")

    log = []
    try:
        for y in steps(x):
            x = x * 2
    except KeyError as e:
        tb = e.__traceback__
        while tb is not None:
            try:
                tb.tb_frame.clear()
            except RuntimeError:
                log.append("running")
            tb = tb.tb_next
        x = x + e.args[0]
    return x, log


@prog()
def vars_without_dict(x):
    try:
        vars(3)
    except TypeError as e:
        return x + 1, str(e)


@prog()
def traceback_taken_away(x):
    kept = []
    try:
        raise NameError("foo")
    except NameError as e:
        kept.append(e.with_traceback(None))
    return x + 1, str(kept[0]), kept[0].__traceback__ is None


@prog()
def object_getattribute_names_what_is_missing(x):
    class A:
        pass

    a, log = A(), ()
    for get in (
        lambda: object.__getattribute__(a, "none"),
        lambda: super(A, a).none,
        lambda: type.__getattribute__(A, "q"),
        lambda: A.q,
    ):
        try:
            get()
        except AttributeError as e:
            log += (e.name, type(e.obj).__name__, str(e))
    return x + 1, log


@prog()
def object_setattr_of_a_class(x):
    class A:
        pass

    log = ()
    for change in (lambda: object.__setattr__(A, "foo", 42), lambda: object.__delattr__(A, "foo")):
        try:
            change()
        except TypeError as e:
            log += (str(e),)
    return x + 1, log, hasattr(A, "foo")

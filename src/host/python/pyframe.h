/* CPython's interpreter frames behind one interface for every supported version.
 * In: frames that the PEP 523 hook received.  Out: their slots and position, running and leaving them.
 * Rule: a frame is always left by CPython itself (its RETURN, YIELD or unwinding code runs), because from
 * 3.12 on the evaluation function owns the clearing of the frame.  So nothing here clears or pops a frame. */
#ifndef MG_PYFRAME_H
#define MG_PYFRAME_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct _PyInterpreterFrame MgFrame;
typedef PyObject *(*MgEvalFunc)(PyThreadState *ts, MgFrame *f, int throwflag);

typedef struct MgCode MgCode;

typedef struct MgFrameView { /* what stays the same while a frame runs; everything borrowed */
  PyObject **slot;           /* locals, cells, free variables, then the value stack */
  PyCodeObject *code;
  PyObject *func; /* the function object */
  PyObject *globals, *builtins;
  PyObject *locals; /* namespace of a class body; NULL in functions */
} MgFrameView;

typedef struct MgFrameLink {
  void *word[4];
} MgFrameLink; /* room for the version's _PyCFrame; from 3.13 on the frame */

/* From 3.14 on CPython tags the references in slots, and some are borrowed.  A view opens the frame: its
 * slots then hold plain owned pointers, and NULL where nothing is.  Whatever gives the frame back to CPython
 * closes it. */
void mg_pyframe_view(MgFrame *f, MgFrameView *v);
PyObject *mg_pyframe_peek(MgFrame *f, int i); /* slot i without opening the frame; borrowed */
/* Frame objects write to the locals of an open frame as CPython has them: makes these plain. */
#if PY_VERSION_HEX >= 0x030E0000
void mg_pyframe_reread(MgFrame *f);
#else
static inline void mg_pyframe_reread(MgFrame *f) {}
#endif
PyCodeObject *mg_pyframe_code(MgFrame *f); /* borrowed */
/* The position of a frame between two instructions: the unit of the next one, 0 in a frame that has not
 * started. */
int mg_pyframe_next(MgFrame *f);
void mg_pyframe_set_next(MgFrame *f, int unit);
/* The position in an instruction: its unit.  Tracebacks and f_lineno show it. */
int mg_pyframe_at(MgFrame *f);
void mg_pyframe_set_at(MgFrame *f, int unit);
/* Number of slots in use, counted from slot 0; -1 while a loop holds the stack pointer itself. */
int mg_pyframe_stacktop(MgFrame *f);
void mg_pyframe_set_stacktop(MgFrame *f, int n);

/* Makes f the thread's current frame (its caller is the one before), and takes that back. */
void mg_pyframe_link(PyThreadState *ts, MgFrame *f, MgFrameLink *l);
void mg_pyframe_unlink(PyThreadState *ts, MgFrameLink *l);

/* So near the recursion limit that compiling, which runs Python code of torch, could exceed it. */
bool mg_pyframe_near_limit(PyThreadState *ts);
/* Counts one Python call against the recursion limit: 0, or -1 with RecursionError
 * (then nothing is counted). */
int mg_pyframe_enter_call(PyThreadState *ts);
void mg_pyframe_leave_call(PyThreadState *ts);

/* The frame must not be linked.  Each returns what the hook has to return. */
PyObject *mg_pyframe_run(PyThreadState *ts, MgFrame *f, int throwflag);
PyObject *mg_pyframe_run_at(PyThreadState *ts, MgFrame *f, int unit); /* go on at this unit */
/* Goes on with the exception that is set, raised in the instruction that the frame stands in. */
PyObject *mg_pyframe_raise(PyThreadState *ts, MgFrame *f, const MgCode *code);
/* An int of the same value that is another object, also where CPython shares them.  New. */
PyObject *mg_pyframe_copy_int(PyObject *v);
/* How many slots of a frame that has run still hold o: 3.11 clears it afterwards only. */
int mg_pyframe_leftover(MgFrame *f, PyObject *o);
/* Unwinds out of the frame with the exception that is set, without running any of its handlers. */
PyObject *mg_pyframe_drop(PyThreadState *ts, MgFrame *f);

/* The frame's generator (borrowed), or NULL for a frame of a function that runs or has yet to make one. */
PyObject *mg_pyframe_generator(MgFrame *f);
PyObject *mg_pyframe_func(MgFrame *f); /* its function, borrowed */
/* Puts a generator frame that was just resumed back to where it was; its caller sees it yield or return None.
 * yield_unit: unit of the YIELD_VALUE it stands at, -1 when it had not started. */
PyObject *mg_pyframe_unresume(PyThreadState *ts, MgFrame *f, int yield_unit);

/* The frame of a generator that stands at a yield; NULL when it has not started, runs or is finished. */
MgFrame *mg_pyframe_suspended(PyObject *gen);
/* The frame of a generator that has not ended: it stands before its first instruction (*started false) or at
 * a yield. NULL when it runs, is finished, or stands inside of an exception handler. */
MgFrame *mg_pyframe_paused(PyObject *gen, bool *started);
bool mg_pyframe_gen_finished(PyObject *gen);
/* A coroutine that has not begun: Python warns when it dies. */
bool mg_pyframe_unawaited(PyObject *gen);
/* Gives a generator that has not started what another one of its code holds: v[0..n), borrowed, NULL where
 * unbound. unit: the yield it stands at; -1: that one has not started either, and v has the contents of the
 * cells that the prologue makes, and no free variables. */
void mg_pyframe_fill_generator(PyObject *gen, PyObject *const *v, int n, int unit);
/* Calls a function with as many arguments as it asks for, which nobody looks at. */
PyObject *mg_pyframe_call_blank(PyObject *func);
/* Ends a generator that stands at a yield, or a coroutine that has not begun, without running any of its
 * code. */
void mg_pyframe_end_generator(PyObject *gen);

/* The exception being handled in this frame or generator: a slot that holds a new reference or NULL. */
PyObject **mg_pyframe_exc_slot(PyThreadState *ts);
PyObject *
mg_pyframe_handled(PyThreadState *ts); /* borrowed; of the nearest frame that handles one, or NULL */
PyObject *mg_pyframe_bare(PyCodeObject *code, PyObject *globals,
                          long line);      /* new: a frame object for tracebacks, never run */
PyObject *mg_pyframe_take_exception(void); /* the one that is set, with its traceback; new */
void mg_pyframe_traceback(
    PyThreadState *ts); /* adds the current frame to the traceback of the exception set */
bool mg_pyframe_traced(
    PyThreadState *ts); /* settrace, setprofile or sys.monitoring is active, or a callback of theirs runs */

/* What CPython's loop does between instructions: signals, pending calls, asynchronous exceptions, other
 * threads' turns. 0, or -1 with what a handler raised. */
int mg_pyframe_pending(PyThreadState *ts);
bool mg_pyframe_finalizing(void); /* the interpreter is being taken apart: nothing can be imported */
/* Lets other threads run when they ask for it. */
void mg_pyframe_give_way(PyThreadState *ts);
/* While held, no handler of a signal and no pending call runs in this thread (only the main one runs any);
 * what came meanwhile does after the release.  Gives the state before. */
bool mg_pyframe_hold_signals(PyThreadState *ts, bool hold);
bool mg_pyframe_waits(void); /* does a signal wait whose handler this thread holds up? */

MgEvalFunc mg_pyframe_eval_func(void);
void mg_pyframe_set_eval_func(MgEvalFunc fn); /* NULL: CPython's own */

/* One pointer of ours per code object, freed with it. */
int mg_pyframe_extra_init(void (*destroy)(void *));
void *mg_pyframe_extra(PyCodeObject *co);
int mg_pyframe_set_extra(PyCodeObject *co, void *p);

/* Parts of instructions that CPython keeps to itself; new references. */
PyObject *mg_pyframe_join(PyObject *const *pieces, int n);         /* BUILD_STRING */
int mg_pyframe_dict_merge(PyObject *d, PyObject *other);           /* DICT_MERGE: KeyError on duplicates */
PyObject *mg_pyframe_type_lookup(PyTypeObject *t, PyObject *name); /* borrowed, no exception */
#if PY_VERSION_HEX >= 0x030E0000
PyObject *mg_pyframe_common_constant(int i);           /* LOAD_COMMON_CONSTANT */
void mg_pyframe_special_error(PyObject *o, int which); /* LOAD_SPECIAL: o has no such method */
PyObject *mg_pyframe_interpolation(PyObject *value, PyObject *text, int conversion, PyObject *format);
PyObject *mg_pyframe_template(PyObject *strings, PyObject *interpolations);
#endif
/* The value of the StopIteration that is set, if one is: 0; -1 with another exception.  *v: new. */
int mg_pyframe_stop_value(PyObject **v);
/* Has a dict keep its values itself.  3.13 keeps those of an instance's dict in the instance, and writes them
 * there without telling watchers or changing the dict's version.  -1: out of memory, without an exception. */
int mg_pyframe_detach_values(PyObject *dict);
bool mg_pyframe_only_strings(PyObject *dict); /* are its keys exact strings? */
/* The next element of a set, borrowed, and its hash; false at the end.  *pos begins with 0. */
bool mg_pyframe_next_in_set(PyObject *set, Py_ssize_t *pos, PyObject **v, Py_hash_t *hash);
#endif

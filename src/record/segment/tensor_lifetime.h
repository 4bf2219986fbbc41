/* Begin and end of a recording: tensors and torch's state. */
#ifndef MG_TENSOR_LIFETIME_H
#define MG_TENSOR_LIFETIME_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCapture MgCapture;
typedef struct MgRec MgRec;

int mg_standin_begin(
    MgRec *r); /* makes r->cap; push the dispatch mode, set torch's compiling flag, pause GC */
void mg_standin_end(MgRec *r); /* undo all of that, keep r->cap */
int mg_standin_alive(MgRec *r);
/* The same; those on a GPU get some time: autograd's thread of that device lets go of what it ran a little
 * after backward has returned. */
int mg_standin_wait(MgRec *r);
void mg_standin_free(MgRec *r);
/* Lets inference ask.  off: every size is a constant. */
void mg_symsize_begin(MgCapture *cap, bool off);
void mg_symsize_end(MgCapture *cap);
/* Notes the active modes; ours (NULL: none) goes below them.  -1 with an exception. */
int mg_fmodes_begin(MgCapture *cap, PyObject *ours);
void mg_fmodes_restore(
    MgCapture *cap);          /* the stack as it was, whatever is on it now; keeps an exception that is set */
int mg_fmodes_wrap(MgRec *r); /* makes them older objects; -1 with an exception */
#endif

/* Numbers and strings that a recording has loaded, but not looked at: see lazy_constants.c. */
#ifndef MG_LAZY_CONSTANTS_H
#define MG_LAZY_CONSTANTS_H
#include "entry/guard/source_kinds.h"

typedef struct MgIdent MgIdent;
typedef struct MgLoop MgLoop;
typedef struct MgRec MgRec;

struct MgInstr;

typedef struct MgUnread {
  PyObject *seen, *orig; /* strong: what the recording has in its place; the object that it was loaded as */
  SrcRef src;            /* 0: an item of a tuple that nobody has asked for so far */
  uint32_t tuple;        /* number of the tuple that it is an item of, plus 1; 0: it was loaded by itself */
  int32_t item;          /* of a tuple: number of its first item, the others follow; of an item: its place */
  bool read;             /* its value is to be guarded; a tuple's items tell it */
} MgUnread;

/* What the recording sees of the constant v at src, new; NULL without exception: v
 * itself, which the caller guards. */
PyObject *mg_unread_wrap(PyObject *v, SrcRef src);
/* Before instruction in, which looks at so many stack entries.  -1 with a break: at a string that keeps
 * changing. */
int mg_unread_before(struct MgLoop *l, const struct MgInstr *in, int reads);
/* Before C code, or code that runs unrecorded, gets these; unless it is known to pass them on.  f NULL: a
 * function that runs unrecorded, or has run.  -1 with a break, if f is given: as mg_unread_before. */
int mg_unread_call(PyObject *f, PyObject *const *arg, Py_ssize_t n);
/* Anybody may look at any of them from here on. */
void mg_unread_all(void);
/* Its source, when it is one, else 0. */
SrcRef mg_unread_src(PyObject *o);
/* The source of a string that has been another one at other calls, and that nobody has looked at; else 0.
 * A dict may be asked for it without a guard on which string it is. */
SrcRef mg_unread_key(PyObject *o);
void mg_unread_look(PyObject *o); /* o itself is looked at */
/* Does the instruction in the frame above push what frame l returns as it is?  Not so when C code gets it. */
bool mg_unread_hands_on(const struct MgLoop *l);
/* Is one in this tuple or slice? */
bool mg_unread_in(PyObject *o);
/* The object that it was loaded as; another object: itself.  Borrowed. */
PyObject *mg_unread_orig(PyObject *o);
/* The recording is over: what nobody has looked at is guarded by its class. */
void mg_unread_end(MgRec *r);
void mg_unread_free(struct MgIdent *d);
#endif

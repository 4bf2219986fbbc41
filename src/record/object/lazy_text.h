/* Text of what has no value while recording: f"{loss}", most often a message for an error that does not come.
 * An object takes the string's place; it is handed around, and says that it is a str.  Nobody may read it:
 * who does, and a snapshot that it reaches, has the segment recorded again with a break where the text is
 * made (a number of the recording: with its value guarded). */
#ifndef MG_LAZY_TEXT_H
#define MG_LAZY_TEXT_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCall MgCall;
typedef struct MgRec MgRec;

bool mg_lazystr_is(PyObject *o);
/* format(o, spec) after a conversion by str, repr or ascii.  New; NULL without an exception: the
 * text is known, or an error. */
PyObject *mg_lazystr_format(MgRec *r, PyObject *o, bool converted, PyObject *spec);
/* The n strings in a row.  New; NULL without an exception: all of them are known. */
PyObject *mg_lazystr_join(PyObject *const *text, int n);
/* A call of C code with such a text: true when *out is its result (NULL with a break). */
bool mg_lazystr_call(const MgCall *c, PyObject **out);
/* Somebody wanted to read one: the recording is given up.  Always NULL with an exception. */
PyObject *mg_lazystr_read(void);
/* An exception that is set: of C code that wants a real str? */
void mg_lazystr_raised(MgRec *r);
#endif

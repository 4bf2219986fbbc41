/* Writes to classes while recording.
 * A class is changed for real, because C code looks methods up through slots that only the type itself keeps
 * right.  The original values are kept beside; they are put back when the recording ends, and the
 * snapshot replays the writes. */
#ifndef MG_CLASS_WRITES_H
#define MG_CLASS_WRITES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgRec MgRec;

/* type.__setattr__ (v NULL: __delattr__), past a metaclass's own. */
int mg_class_set(PyTypeObject *t, PyObject *name, PyObject *v);
/* Does the answer of looking name up on t come from a write of this recording?  Then it needs no guard. */
bool mg_class_wrote(PyTypeObject *t, PyObject *name);
/* The same for a key of the class's own dict; key NULL: was any written? */
bool mg_class_wrote_dict(PyObject *dict, PyObject *key);
/* Puts every class back; later calls do nothing. */
void mg_classes_undo(MgRec *r);
#endif

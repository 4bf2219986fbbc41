/* Iterators of dicts at the end of a segment, and states of iterators that are set last.
 * In: an iterator that the recording made, over a dict that it made or that is older.  Out: instructions that
 * make one over the rebuilt dict, and put it at its place after all writes to the dict. A loop's own
 * iterator, and what it iterates over in turn (enumerate, zip), is left to snapshot.c, which makes an
 * iterator of a list of the rest: the next segment can go on with that. Only the loop takes from it, so
 * nothing asks for its class. */
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "host/python/iterators.h"
#include "host/python/hook_mode.h"
#include "record/core/recording.h"
#include "record/snapshot/snapshot.h"
#include "record/snapshot/snapshot_build.h"

bool mg_snap_late(MgBuilder *b, MgSnapOp op, uint32_t me, PyObject *state) {
  uint32_t v = mg_snap_build(b, state);
  MgSnapLate *late = mg_snap_grow(b->late, &b->cap_late, b->nlate + 1, sizeof *late);
  if (!late) PyErr_NoMemory();
  else b->late = late;
  if (!late || v == SNAP_FAIL) return false;
  late[b->nlate++] = (MgSnapLate){(uint8_t)op, me, v};
  return true;
}

void mg_snap_note_loop(MgBuilder *b, PyObject *const *slots, int i) {
  PyObject *below = i ? slots[i - 1] : NULL;
  bool method = below && Py_TYPE(below) == &PyMethodDescr_Type; /* a call of the iterator's method */
  bool method_in_c = below && Py_TYPE(below) == &PyWrapperDescr_Type;
  const MgGuards *g = mg_rec->guards;
  bool stack = g && mg_source_slot_on_stack(g, i);
  bool iterates = slots[i] && PyIter_Check(slots[i]); /* a bound method of an iterator does not */
  b->loop = stack && iterates && !method && !method_in_c ? slots[i] : NULL;
}

/* The method of a view of the dict, called; SNAP_FAIL on failure. */
static uint32_t snap_iterate(MgBuilder *b, const MgDictIterKind *kind, uint32_t view) {
  PyObject *method = PyObject_GetAttrString((PyObject *)kind->view_type, kind->method);
  uint32_t args = mg_snap_emit(b, SN_tuple, NULL, 0, &view, 1);
  uint32_t part[2] = {method ? mg_snap_emit(b, SN_const, method, 0, NULL, 0) : SNAP_FAIL, args};
  Py_XDECREF(method);
  return part[0] == SNAP_FAIL || args == SNAP_FAIL ? SNAP_FAIL : mg_snap_emit(b, SN_call, NULL, 0, part, 2);
}

uint32_t mg_snap_dict_iterator(MgBuilder *b, PyObject *o) {
  const MgDictIterKind *kind = mg_dict_iterator(o);
  PyObject *dict = ((IterDict *)o)->dict, *name = PyUnicode_InternFromString(kind->view);
  PyObject *over = dict ? Py_NewRef(dict) : PyDict_New();
  Py_ssize_t given = mg_dict_iterator_given(o);
  PyObject *count = given < 0 ? NULL : PyLong_FromSsize_t(given);
  uint32_t me = SNAP_FAIL, view = SNAP_FAIL;
  if (given < 0 && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
    PyErr_Clear(); /* the next item is this error, for the program to see */
    mg_snap_refuse(o);
  }
  bool kept = count && over && !PyList_Append(b->keep, count) && !PyList_Append(b->keep, over);
  if (kept && name) view = mg_snap_emit_over(b, SN_view, name, 0, &over, 1);
  if (view != SNAP_FAIL) {
    me = mg_map_getp(&b->memo, o); /* made already, where the dict holds its own iterator */
    if (me == MG_MAP_NONE) {
      me = snap_iterate(b, kind, view);
      if (me != SNAP_FAIL && !mg_snap_late(b, SN_set_iterator, me, count)) me = SNAP_FAIL;
    }
  }
  Py_XDECREF(count);
  Py_XDECREF(over);
  Py_XDECREF(name);
  return me;
}

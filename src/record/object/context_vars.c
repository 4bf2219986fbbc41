/* Context variables that the program reads and sets. */
#include "record/object/context_vars.h"
#include "record/core/identity.h"
#include "record/core/recording.h"

void mg_rec_context_undo(MgRec *r) {
  if (!r->ident || !r->ident->context) return;
  PyObject *et, *ev, *tb;
  PyErr_Fetch(&et, &ev, &tb);
  if (PyContext_Exit(r->ident->context)) PyErr_Clear(); /* left in another order: nothing to undo */
  Py_CLEAR(r->ident->context);
  PyErr_Restore(et, ev, tb);
}

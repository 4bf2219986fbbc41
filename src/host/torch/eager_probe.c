/* Asks the torch at hand which rules of eager PyTorch hold.
 * In: the probes of ir/infer/eager_rules.def.  Out: answers for mg_eager_rule.
 * Invariant: runs once, while the extension loads, under no mode of the program. */
#include "host/torch/eager_probe.h"
#include "host/python/pyobject.h"
#include "ir/infer/eager_rules.h"

static const char *const probe_text[ER__COUNT] = {
#define EAGER_RULE(name, probe) probe,
#include "ir/infer/eager_rules.def"
};

int mg_eager_probe(void) {
  PyObject *torch = mg_import("torch");
  PyObject *names = torch ? Py_BuildValue("{s:O}", "torch", torch) : NULL;
  for (int i = 0; names && i < ER__COUNT; i++) {
    PyObject *yes = PyRun_String(probe_text[i], Py_eval_input, names, names);
    if (yes) mg_eager_rule_set((MgEagerRule)i, yes == Py_True);
    else mg_clear_as_no(); /* this torch cannot be asked */
    Py_XDECREF(yes);
  }
  Py_XDECREF(torch);
  Py_XDECREF(names);
  return names ? 0 : -1;
}

/* Which modules of the Python package C code calls.
 * In: a row of the table in the header.  Out: the module.  Keeps nothing: imported modules are in
 * sys.modules. Does not say what is called in them: that stands where it is called. */
#include "host/python/glue.h"
#include "host/python/pyobject.h"

PyObject *mg_glue(MgGlue module) {
  static const char *const names[] = {
#define GLUE_ROW(id, name) name,
      MG_GLUE_MODULES(GLUE_ROW)
#undef GLUE_ROW
  };
  return mg_import(names[module]);
}

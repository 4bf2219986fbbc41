/* Tells the user once what lower layers noticed: see the header.
 * The warnings have no registry: that of a module is a global of the program, which a
 * recording may have guarded. */
#include "host/python/notices.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "base/notice.h"
#include "host/python/hook_mode.h"
#include "runtime/code/cachedir.h"
#include "runtime/code/disk_cache.h"

int mg_notices_warn(void) {
  char text[MG_NOTICE_TEXT];
  while (mg_notice_take(text, sizeof text))
    if (PyErr_WarnExplicitFormat(PyExc_RuntimeWarning, "<magneto>", 1, "magneto", NULL, "magneto: %s", text))
      return -1;
  return 0;
}

void mg_notices_tell(void) {
  PyObject *type, *value, *trace;
  if (!mg_notice_waits()) return;
  MgPause pause = mg_rec_pause();
  PyErr_Fetch(&type, &value, &trace);
  if (mg_notices_warn()) PyErr_WriteUnraisable(NULL);
  PyErr_Restore(type, value, trace);
  mg_rec_resume(pause);
}

/* Values and paths may be any bytes. */
static PyObject *notices_text(const char *text) {
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* One variable: (name, kind, accepted, default, meaning, value or None, what is wrong or None). */
static PyObject *notices_variable(MgEnv v) {
  char bad[MG_NOTICE_TEXT];
  MgEnvRow r = mg_env_row(v);
  const char *value = getenv(r.name);
  PyObject *set = value ? PyUnicode_DecodeFSDefault(value) : Py_NewRef(Py_None);
  PyObject *wrong = mg_env_bad(v, bad, sizeof bad) ? notices_text(bad) : Py_NewRef(Py_None);
  if (set && wrong)
    return Py_BuildValue("(sssssNN)", r.name, r.kind, r.accepted, r.standard, r.meaning, set, wrong);
  Py_XDECREF(set);
  Py_XDECREF(wrong);
  return NULL;
}

static PyObject *notices_environment(PyObject *self, PyObject *unused) {
  PyObject *all = PyTuple_New(ENV__COUNT);
  for (int i = 0; all && i < ENV__COUNT; i++) {
    PyObject *v = notices_variable((MgEnv)i);
    if (v) PyTuple_SET_ITEM(all, i, v);
    else Py_CLEAR(all);
  }
  return all;
}

static PyObject *notices_all(PyObject *self, PyObject *unused) {
  PyObject *all = PyList_New(0);
  const char *text;
  mg_env_check();
  for (unsigned i = 0; all && (text = mg_notice_at(i)); i++) {
    PyObject *t = notices_text(text);
    if (!t || PyList_Append(all, t)) Py_CLEAR(all);
    Py_XDECREF(t);
  }
  return all;
}

static PyObject *notices_cache(PyObject *self, PyObject *unused) {
  MgArtifactInfo i;
  const char *why = mg_cachedir_why();
  mg_artifact_info(&i);
  return Py_BuildValue("{s:s,s:z,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "folder", mg_cachedir_path(),
                       "off", why, "files", (unsigned long long)i.nfile, "temporaries",
                       (unsigned long long)i.ntemp, "not_allowed", (unsigned long long)i.nwrong, "bytes",
                       (unsigned long long)i.bytes, "limit", (unsigned long long)i.limit, "loaded",
                       (unsigned long long)i.loaded, "stored", (unsigned long long)i.stored, "damaged",
                       (unsigned long long)i.damaged, "refused", (unsigned long long)i.refused, "removed",
                       (unsigned long long)i.swept);
}

static PyMethodDef notices_methods[] = {
    {"environment", notices_environment, METH_NOARGS,
     "The variables MAGNETO_*: name, kind, accepted, default, meaning, value, what is wrong."},
    {"notices", notices_all, METH_NOARGS, "What the user was told, or will be: one text each."},
    {"disk_cache_info", notices_cache, METH_NOARGS,
     "The cache folder: place, why it is off, what is in it, what this process did there."},
    {NULL, NULL, 0, NULL}};

int mg_notices_init(PyObject *module) { return PyModule_AddFunctions(module, notices_methods); }

/* What is kept of a code object: its decoded form and its sites. */
#include "host/python/code_info.h"
#include "host/python/decode.h"
#include "host/python/pyframe.h"

MgCodeInfo *mg_code_infos;

void (*mg_code_info_ends)(MgCodeInfo *info);

MgCodeInfo *mg_code_info(PyCodeObject *co) {
  MgCodeInfo *info = mg_pyframe_extra(co);
  if (info) return info;
  if (!(info = mg_calloc(1, sizeof *info))) return (MgCodeInfo *)PyErr_NoMemory();
  info->code = co;
  info->skip = -1;
  if (mg_pyframe_set_extra(co, info)) {
    free(info);
    return NULL;
  }
  info->next = mg_code_infos;
  if (mg_code_infos) mg_code_infos->prev = info;
  return mg_code_infos = info;
}

const MgCode *mg_code_decoded(MgCodeInfo *info, PyCodeObject *co) {
  if (!info->decoded) info->decoded = mg_decode(co);
  return info->decoded;
}

/* See the header.  A tensor is an inference tensor if inference mode was on when its memory
 * was made; its views are, too.
 * In: ops that are recorded, the mode of that moment.  Out: marks by storage; results of a run made anew over
 * their memory where
 * the mode of the run is another one than that of the op.  Breaks stand where torch refuses such a tensor. */
#include "record/tensor/inference_mode.h"
#include <stdlib.h>
#include "record/core/capture.h"
#include "record/core/recording.h"

bool mg_inference_mode_of(const MgCapture *cap, ValRef v) {
  uint32_t storage = mg_val(cap->rec->g, v)->storage;
  return storage < cap->cap_inference && cap->storage_inference[storage];
}

int mg_inference_mode_mark(MgCapture *cap, ValRef v) {
  uint32_t storage = mg_val(cap->rec->g, v)->storage, n = cap->cap_inference ? cap->cap_inference : 256;
  while (n <= storage) n *= 2;
  if (n > cap->cap_inference) {
    bool *p = mg_realloc(cap->storage_inference, n);
    if (!p) return PyErr_NoMemory(), -1;
    for (uint32_t i = cap->cap_inference; i < n; i++) p[i] = false;
    cap->storage_inference = p;
    cap->cap_inference = n;
  }
  cap->storage_inference[storage] = true;
  return 0;
}

int mg_inference_mode_input(MgCapture *cap, PyObject *tensor, ValRef v) {
  int yes = mg_standin_inference(tensor);
  return yes <= 0 ? yes : mg_inference_mode_mark(cap, v);
}

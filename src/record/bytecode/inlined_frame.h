/* The hook's part while recording. */
#ifndef MG_INLINED_FRAME_H
#define MG_INLINED_FRAME_H
#include "host/python/pyframe.h"

/* Runs an inlined frame and returns what the hook must return. */
PyObject *mg_record_frame(PyThreadState *ts, MgFrame *f, int throwflag);
#endif

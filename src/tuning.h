/* Limits, thresholds and patience: the rows of tuning.def as constants. */
#ifndef MG_TUNING_H
#define MG_TUNING_H

enum {
#define TUNE(name, value, unit, why) MG_TUNE_##name = value,
#define TUNE_REAL(name, value, unit, why)
#include "tuning.def"
  MG_TUNE__LAST
};

#define TUNE(name, value, unit, why)
#define TUNE_REAL(name, value, unit, why) static const float MG_TUNE_##name = value;
#include "tuning.def"
#endif

#include "back/lower.h"
const LwRow lw_rows_norm[] = {{0}};

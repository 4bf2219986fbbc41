#include "back/lower.h"
const LwRow lw_rows_index[] = {{0}};

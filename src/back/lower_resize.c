#include "back/lower.h"
const LwRow lw_rows_resize[] = {{0}};

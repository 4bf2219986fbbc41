#include "back/lower.h"
const LwRow lw_rows_window[] = {{0}};

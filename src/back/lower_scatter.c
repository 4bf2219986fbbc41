#include "back/lower.h"
const LwRow lw_rows_scatter[] = {{0}};

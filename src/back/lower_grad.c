#include "back/lower.h"
const LwRow lw_rows_grad[] = {{0}};

/* Guards about memory that inputs share. */
#ifndef MG_FRONT_ALIAS_H
#define MG_FRONT_ALIAS_H
#include "front/rec.h"
int mg_alias_guards(MgRec *r); /* at the end of a recording; -1 with an exception */
#endif

/* Dict watchers (CPython 3.12 and later): sealed guard sets are told when a dict they rely on changes. */
#ifndef MG_DICT_WATCH_H
#define MG_DICT_WATCH_H
#include <stdint.h>

typedef struct MgGuards MgGuards;

/* Watches every dict of a sealed set; sets g->watched when that worked. */
void mg_guard_watch(MgGuards *g);
/* Before the set is freed. */
void mg_guard_unwatch(MgGuards *g);
/* Dict i (the dict guards, then the hook dicts) has been compared with what is recorded:
 * tell about the next change. */
void mg_guard_rearm(MgGuards *g, uint32_t i);
#endif

/* torch._dynamo.utils.counters, which programs and benchmarks read to see what was
 * compiled and why graphs broke. */
#ifndef MG_DYNAMO_COUNTERS_H
#define MG_DYNAMO_COUNTERS_H

/* A segment was compiled into a graph of ncall ops (0: it has none); reason: why it ends before its frame
 * does, or NULL. Nothing is counted before the program has loaded torch._dynamo; an
 * exception is left as it is. */
void mg_counters_segment(int ncall, const char *reason);
#endif

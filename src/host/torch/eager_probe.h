/* Asks the torch at hand which rules of ir/infer/eager_rules.def hold. */
#ifndef MG_EAGER_PROBE_H
#define MG_EAGER_PROBE_H
/* -1 with an exception: torch cannot be imported, or memory is out.  Another probe that raises keeps its
 * rule. */
int mg_eager_probe(void);
#endif

/* Which rules of eager PyTorch hold in the torch at hand; eager_rules.def has them. */
#ifndef MG_EAGER_RULES_H
#define MG_EAGER_RULES_H
#include <stdbool.h>

typedef enum MgEagerRule {
#define EAGER_RULE(name, probe) ER_##name,
#include "ir/infer/eager_rules.def"
  ER__COUNT
} MgEagerRule;

bool mg_eager_rule(MgEagerRule rule);
/* Called while the extension loads, before anything is compiled. */
void mg_eager_rule_set(MgEagerRule rule, bool holds);
#endif

/* Which rules of eager PyTorch hold.
 * In: answers of host/torch/eager_probe.c.  Out: mg_eager_rule.  Written once, while the extension loads.
 * Does not know torch. */
#include "ir/infer/eager_rules.h"

static bool eager_old[ER__COUNT]; /* the rule does not hold */

bool mg_eager_rule(MgEagerRule rule) { return !eager_old[rule]; }
void mg_eager_rule_set(MgEagerRule rule, bool holds) { eager_old[rule] = !holds; }

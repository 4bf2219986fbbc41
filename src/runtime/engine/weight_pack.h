/* Packing of float32 convolution weights into a library's blocked format, scaled per output channel on the
 * way. The source is read as groups x outputs x elements (input channel and window position, in the order of
 * memory). In the target the offset of a weight is the sum of an offset for its group, one for its output and
 * one for its element: true of every blocked format.  With lane > 1, `lane` consecutive outputs are together
 * in the target and the elements of one output are dense in the source; whole vectors are then moved.
 * All offsets count elements. */
#ifndef MG_WEIGHT_PACK_H
#define MG_WEIGHT_PACK_H
#include <stddef.h>
#include <stdint.h>

typedef struct MgPack {
  int lane;           /* outputs moved together: mg_pack_lane, or 1 */
  int64_t ngroup;     /* groups */
  int64_t nout;       /* outputs per group */
  int64_t nelem;      /* elements per output */
  int64_t npad;       /* elements that only the target has; they become zero */
  int64_t src_group;  /* source stride of a group */
  int64_t src_out;    /* source stride of an output */
  int64_t nlane;      /* lane groups that the target holds per group, padding included */
  int64_t *group_off; /* [ngroup] target offsets */
  int64_t *lane_off;  /* [nlane] target offsets */
  int32_t *elem_off;  /* [nelem + npad] target offsets */
  int32_t *src_elem;  /* [nelem] source offsets; used when lane is 1 */
} MgPack;

/* The most outputs that this CPU moves together into a format with blocks of that many: 16, 8 or 1. */
int mg_pack_lane(int64_t block);
/* Packs units [begin, end) of ngroup * nlane.  scale: [ngroup * nout] factors, or NULL. */
void mg_pack_run(const MgPack *p, const float *src, const float *scale, float *dst, int64_t begin,
                 int64_t end);
void mg_pack_free(MgPack *p); /* the tables; p itself belongs to the caller */
#endif

/* Begin and end of a recording: objects. */
#ifndef MG_LIFETIME_H
#define MG_LIFETIME_H

typedef struct MgRec MgRec;
typedef struct MgSlots MgSlots;

/* ---- life of a recording; the driver (frame_driver.c) calls these in this order ----
 *   mg_objects_begin, mg_standin_begin          on the unchanged frame
 *   ... the loop runs; operations below ...
 *   mg_snapshot_build                           when it stopped without an abort
 *   mg_joint_record                             backward of the results, while the stand-ins live
 *   mg_effects_undo, mg_standin_end             global torch state is as before;
 *   nothing is recorded from here on
 *   (the driver puts the frame's own values back)
 *   mg_exec_build, mg_guards_seal               with the recording over; may run Python (backends)
 *   mg_objects_end, mg_standin_free             free what the entry did not take (r->guards is NULL then)
 * After mg_objects_end every stand-in must be dead: mg_standin_alive(r) == 0, asserted in strict mode. */
int mg_objects_begin(MgRec *r, const MgSlots *s); /* makes ident, guards, effects; -1 with exception */
void mg_objects_end(MgRec *r);
void mg_effects_undo(MgRec *r);
#endif

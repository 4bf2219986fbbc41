/* One segment while it is compiled, for the files segment*.c only. */
#ifndef MG_SEGMENT_PARTS_H
#define MG_SEGMENT_PARTS_H
#include "entry/guard/guard_set.h"
#include "entry/launch/config.h"
#include "record/core/loop.h"
#include "record/core/recording.h"
#include "record/segment/segment_at.h"

typedef struct MgBucket MgBucket;

typedef struct MgEntry MgEntry;
typedef struct MgGuardFail MgGuardFail;
typedef struct MgInner MgInner;
typedef struct MgSnapshot MgSnapshot;

typedef struct SegmentFrame {
  MgSegmentAt *d;
  int base, nslot; /* its slots among those of the segment */
  int at;          /* its position */
} SegmentFrame;

typedef struct Segment {
  PyThreadState *ts;
  const MgConfig *cfg;
  MgCodeInfo *info;
  const MgCode *code; /* of the frame that it starts in */
  MgFrameView v;
  SegmentFrame frame[MG_STOP_DEPTH]; /* that one, then those that wait for it */
  int nframe;
  int level;        /* the one that the recording is in */
  int *returns;     /* level entries: units where the ones before returned */
  int max_level;    /* it may not go further up */
  int unit;         /* where it starts */
  MgSlots slots;    /* of all frames: slots in use at the start */
  PyObject **saved; /* their values, strong; slots.slot */
  PyObject *exc0;   /* handled exception at the start, strong or NULL */
  /* the end that the next attempt has to use */
  int stop_level;             /* the frame that it is in */
  long stop_at;               /* -1: as far as it goes */
  int nplain;                 /* instructions to execute unrecorded there */
  int back;                   /* how far the next failing snapshot moves the end */
  MgStop stop[MG_STOP_DEPTH]; /* n of each frame on the way to the end; only with nstop > 1 */
  int nstop;                  /* frames on that way; 0: the end is in this frame */
  bool may_descend;           /* the end may be in a frame that this one calls */
  long outer_stop;            /* stop_at and nplain when such an end cannot be used */
  int outer_nplain;
  MgSnapshot *snap;         /* taken at an end in a frame that this one calls; NULL: none */
  MgInner *inner;           /* the frames at such an end; NULL: the end is in this frame */
  int ninner, nvalue;       /* of inner; of the values in snap */
  int end, nslot_end;       /* position of this frame and its slots at such an end */
  PyCodeObject *inner_code; /* strong: code of the innermost frame */
  int line;                 /* of the break; 0: where the segment ends */
  MgBreakCode why;          /* the break that made it */
  char reason[256];
  MgEntry *entry;   /* the result */
  bool failed;      /* compiling failed: exception set */
  bool leaked;      /* stand-ins outlive the recording: failed is set as well */
  uint32_t denied;  /* bits RETRY_*: what the next attempt does without (retries.def) */
  bool again;       /* the last attempt changed what it met (a lazy module, an import), and does not count */
  int nimport;      /* attempts that an import has spoilt */
  bool users_error; /* what is raised is the program's to see */
  bool need_fx;     /* a torch-level graph is needed, which runs as it is: graph_cfg is used */
  MgConfig graph_cfg;
  bool false_claims;   /* a run found another answer than the one that was assumed (speculation.h) */
  bool break_is_error; /* where it broke, the program had asked for an error:
                          torch._dynamo.error_on_graph_break(True) */
  bool off;            /* torch is in a state that is never recorded (inside vmap, under a dispatch mode) */
  bool eager;          /* by the program's dispatch mode, which sees every op, for fake tensors, by
                          torch._dynamo.config.disable: no error under fullgraph */
  bool too_deep;       /* the recursion of the frame leaves too little C stack */
} Segment;

typedef struct SegmentEnd { /* where a recording ended, in the frame of its level */
  int unit, nslot;
  bool is_ret;
} SegmentEnd;

/* ---- segment_frames.c: the frames of the program ---- */

/* Fills frame, slots, saved and what else describes the start.  -1 with an exception. */
int mg_segment_save(Segment *s, MgSegmentAt *first, const MgSlots *slots);
/* Makes the frame that the recording started in the current one again. */
void mg_segment_restore(Segment *s);
void mg_segment_drop_inner(Segment *s);
void mg_segment_free(Segment *s);
/* How far the frame of this level may go, from where it stands.  -1 with an exception. */
int mg_segment_outer(Segment *s, MgOuter *o);
/* The frame is about to end: drops its locals.  -1: that broke the recording. */
int mg_segment_clear_locals(Segment *s, MgRec *r, const MgOuter *o);
/* The frame stands before its RETURN.  1: the recording goes on in the frame that waits for it, behind its
 * call.  0: it does not.  -1: broken off. */
int mg_segment_go_up(Segment *s, MgRec *r, MgOuter *o, const MgLoop *l);

/* ---- segment_break.c: where the next attempt ends ---- */

/* After a break in instruction number o->n. */
void mg_segment_place_break(Segment *s, const MgRec *r, const MgOuter *o);
/* After a snapshot that failed at the end of the segment: ends it earlier, by growing steps. */
void mg_segment_move_back(Segment *s, const MgRec *r, long n);
/* MgRec.stopped: the recording reached its end in a frame that this one calls.  Takes the snapshot. */
int mg_segment_stopped(MgRec *r, MgLoop *innermost);

/* ---- segment_retry.c: what the next attempt is denied (retries.def) ---- */

/* Denies all rows of one moment that have failed; true if there are any. */
bool mg_segment_retry_take(Segment *s, const MgRec *r, MgRetryWhen when);
/* Denies the first row of the moment `next` that has failed and is not denied yet; false if there is none. */
bool mg_segment_retry_next(Segment *s, MgRec *r);
/* Counts the new entry of b; where tensors' numbers have changed often, later segments may not guard them. */
void mg_segment_retry_contents(Segment *s, MgBucket *b, const MgEntry *e);
/* Rows between the words of an attempt and of MgBucket. */
uint32_t mg_segment_retry_from_kept(uint8_t kept);
uint8_t mg_segment_retry_to_kept(uint32_t denied);

/* ---- segment_record.c, segment_entry.c, segment_attempt.c: one attempt ---- */

/* Runs the loop over the frames and builds the snapshot; NULL when the attempt has to be repeated. */
MgSnapshot *mg_segment_record(Segment *s, MgRec *r, MgOuter *o, SegmentEnd *end);
/* Compiles what was recorded into s->entry; steals snap.  -1 with an exception. */
int mg_segment_make_entry(Segment *s, MgRec *r, MgSnapshot *snap, const MgOuter *o, const SegmentEnd *end);
/* Do the guards hold for the frame as it is?  An exception, and false, when out of memory. */
bool mg_segment_guards_hold(const Segment *s, const MgGuards *g, MgGuardFail *why);
/* Drops an entry that does not hold any more, so that the next attempt sees what this one has changed. */
void mg_segment_check_state(Segment *s, bool filled_cache, bool imported);
/* Prints the entry on the log channels of frames, guards and graph breaks. */
void mg_segment_log(const Segment *s, const MgEntry *e);
/* Records once.  0 (s->entry is set, or another attempt is needed), -1 with an exception. */
int mg_segment_attempt(Segment *s);
#endif

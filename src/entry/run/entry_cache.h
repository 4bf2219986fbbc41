/* What is known about a code object: its decoded form, what kind of code it is, and the compiled entries at
 * its offsets. Owned by the code object (freed with it); entries also by reset(), by the death of a module
 * that they were compiled for, and by the death of their custom backend.
 * Equal options of two compile() calls are one configuration, so functions that are made anew at every call
 * (lambdas, closures) share the entries of their code.  Methods are shared by many instances, so the entries
 * of an offset lie in buckets, one per module instance: a hit does not look at the entries of other
 * instances, and the recompile limit counts what changed for one of them.  A bucket is only a hint: the
 * guards decide. All access with the GIL held.  Entries are reference-counted, because another thread
 * may drop one while it runs. */
#ifndef MG_ENTRY_CACHE_H
#define MG_ENTRY_CACHE_H
#include "base/table.h"
#include "entry/guard/transient_modules.h"
#include "entry/launch/break_reasons.h"
#include "entry/run/profitability.h"
#include "entry/run/whole.h"
#include "runtime/process/measure.h"

typedef struct MgCodeInfo MgCodeInfo;

typedef struct MgCode MgCode;
typedef struct MgConfig MgConfig;
typedef struct MgCost MgCost;
typedef struct MgExec MgExec;
typedef struct MgExecAt MgExecAt;
typedef struct MgSite MgSite;
typedef struct MgSlots MgSlots;
typedef struct MgSnapshot MgSnapshot;

typedef struct MgInner { /* a frame inside of the one that the segment started in, to be made anew */
  int unit;              /* where it goes on: its call of the next one, or the break */
  int first, nslot;      /* values of the snapshot: its function, then its slots */
} MgInner;

typedef struct MgEntry { /* one compiled segment of a frame */
  int refs;
  MgGuards *guards;
  MgExec *exec;
  MgSnapshot *snap;
  int unit, end;  /* code units: where it starts; where the frame goes on (or the RETURN instruction) */
  bool is_ret;    /* the segment ends by returning */
  bool claims;    /* runs may be given up: answers are taken for granted (speculation.h) */
  bool unclaimed; /* for runs that were: the graph breaks at such questions */
  uint8_t penalty,
      rest;     /* after runs that were given up: how many are not tried the next time, and from now on */
  bool repeats; /* a run that raises may be given up: the frame runs without a compiler, and raises as it
                   would have */
  bool look;    /* runs in one frame: what its call was like, for what differs in the next one */
  bool keeps_random; /* a run may be given up: torch's random numbers are then as before */
  int nplain;        /* instructions to execute unrecorded at `end` */
  int level; /* so many frames have returned by then: end and what follows are of the one that called them */
  int *returns;                  /* level entries: units of their RETURN */
  int nslot;                     /* slots of the frame that the snapshot fills */
  MgInner *inner;                /* frames that the outer one was calling at `end`, from the outermost on */
  int ninner, nvalue;            /* values that the snapshot makes: nslot, then those of the inner frames */
  bool *untouched;               /* nslot entries: slots that keep the frame's own value */
  MgBreakCode code;              /* why it ends */
  char *reason;                  /* the same for people */
  int nnode;                     /* ATen ops recorded */
  int line, end_line;            /* source lines of unit and of the break, which may be in another frame: */
  PyObject *end_file, *end_name; /* strong: its file and qualified name */
  uint64_t recording;            /* for reports: its number, as MgTrace.recording has it */
  double record_ms, compile_ms;  /* for reports: what making it took */
  MgTicks guarding, running;     /* for reports: of hits that were looked at closely */
  long number;                   /* counts entries since the last reset: the order in which they were made */
  PyObject *shown; /* for explain: the recorded graph as a torch.fx.GraphModule, or a text that says why there
                      is none; strong, or NULL */
  long hits;
  MgWhole whole;
  struct MgBucket *bucket; /* where it is listed; NULL once it is not */
  Py_ssize_t
      key_watch; /* the weak reference to the bucket's instance in guards->watch, counted from 1; 0: none */
} MgEntry;

typedef struct MgBucket { /* the entries of one offset for one module instance */
  struct MgSite *site;
  const void *key; /* address of the instance, never followed; NULL: any */
  MgEntry **entry; /* most recently used first */
  int n, cap;
  long hits; /* of entries that are gone */
  int plain; /* > 0: nothing more can be recorded here; where no entry fits, execute so many instructions */
  uint8_t refused;         /* recordings that a kind of tensor kept from beginning */
  bool walks;              /* Python code around a break in a loop, executed as it is (interpreted_loops.h) */
  bool eager;              /* too many entries: frames go on in CPython from here */
  uint32_t misses;         /* while eager or plain: looks in a row that found nothing */
  uint32_t unreturned;     /* looks in a row for an entry that returns which found none */
  uint8_t contents;        /* entries that guard numbers of tensors; those that guard several count twice */
  uint8_t denied;          /* MG_DENY_*: what cannot be recorded for this instance */
  uint8_t idle;            /* frames in a row that ran no op from here to their end */
  MgTrial trial;           /* of frames that start here */
  MgCost *cost;            /* of such frames, owned; NULL until one has been driven */
  uint32_t rest, patience; /* looks until the next frame is driven again; how many of them at a time */
} MgBucket;

typedef struct MgSite { /* one offset of a code object, for one configuration */
  struct MgSite *next;
  uint32_t config;
  uint64_t chain; /* tells the frames apart that wait for this one, and may be recorded with it; 0: none */
  int unit;
  int key_slot;      /* where the instance is: a slot; MG_KEY_CELL - i: in closure cell i; MG_KEY_NONE */
  MgBucket **bucket; /* bucket[0]: key NULL */
  uint32_t nbucket, cap;
  MgMap by_key;     /* key -> index in bucket */
  uint32_t n;       /* entries in all buckets */
  bool rests;       /* some bucket has been idle for long, or was left (frame_cost.h) */
  bool timed;       /* an entry is timed beside CPython (whole_trial.h) */
  bool told;        /* the user knows that its recompile limit was reached */
  uint8_t brief;    /* instances in a row whose entries were hardly used before they died (frame_cost.c) */
  MgParted parted;  /* modules of entries that are gone */
  MgMap *transient; /* the code object's */
  PyObject *left;   /* list: what a custom backend compiled for modules that are gone (MgRec's peers), strong;
                       or NULL */
} MgSite;
enum { MG_KEY_NONE = -1, MG_KEY_CELL = -2 };
/* The site, made when create is set; NULL when there is none (without create) or with exception. */
MgSite *mg_cache_site(MgCodeInfo *info, uint32_t config, int unit, uint64_t chain, bool create);
/* The bucket for a frame, or NULL: without create when there is none, else with exception. */
MgBucket *mg_cache_bucket(MgSite *site, const MgSlots *s, bool create);
/* Classes whose instances are not told apart here, by bucket or by guards: NULL when too much
 * differs between them for that. */
const MgMap *mg_cache_transient(const MgSite *site);
/* What the code cannot go on with when it runs for one instance: sizes that are symbols, sizes that depend on
 * data, all that is left of a loop, numbers in small tensors. */
enum { MG_DENY_sizes = 1, MG_DENY_data = 2, MG_DENY_unroll = 4, MG_DENY_contents = 8 };
uint8_t mg_cache_denied(const MgCodeInfo *info, uint32_t config,
                        const MgSlots *s); /* at any offset, for the instance in s */
void mg_cache_break_data(
    MgEntry *e); /* e is dropped (the caller has a reference), and sizes that depend on data break graphs */
void mg_cache_drop(MgEntry *e);            /* out of its bucket, and released */
int mg_cache_add(MgBucket *b, MgEntry *e); /* steals e; becomes the first; -1 with exception */
/* Frames that only run Python code gain nothing: what is known about them costs more than it saves.  From a
 * place that was followed by no op again and again, CPython runs the frame to its end, with what it calls;
 * now and then one is driven to see. */
bool mg_cache_rests(MgBucket *b);
void mg_cache_note_idle(MgBucket *b, bool idle);  /* a frame has been driven from here to its end */
extern _Thread_local unsigned long mg_cache_work; /* segments with ops that this thread has run */
extern unsigned long mg_cache_epoch;              /* changes when buckets are freed */
/* The first entry whose guards hold, moved to the front; a new reference.  *vals receives its source values:
 * a buffer of MG_SMALL_VALS entries that the caller owns, replaced by a malloc'ed one (freed by the caller)
 * when *nvals has to grow. NULL: none, or an exception. */
#define MG_SMALL_VALS 64
enum {
  MG_FIND_returns = 1,
  MG_FIND_unclaimed = 2,
  MG_FIND_look = 4
}; /* only those that return; instead of those with claims, those for their failing; entries that only look,
      too */
MgEntry *mg_cache_find(MgSite *site, const MgSlots *s, PyObject ***vals, int *nvals, MgExecAt **at,
                       int which);
MgEntry *mg_entry_new(void);       /* NULL with exception */
void mg_entry_release(MgEntry *e); /* NULL is fine */
/* The number of these options (cfg->id is not looked at), the same for equal ones; 0 with exception.  Each
 * call pairs with one mg_config_release. */
uint32_t mg_config_acquire(const MgConfig *cfg);
void mg_config_release(uint32_t id);
int mg_cache_init(PyObject *module);
#endif

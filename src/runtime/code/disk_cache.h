/* What earlier processes compiled, kept on disk: object files, so that a warm start needs no LLVM, and plans
 * (driver/plan_store). A file is found by a 128-bit key of everything that determines its contents.  Files
 * are written under a temporary name and renamed.  They carry a keyed digest (BLAKE2b) and are only read when
 * runtime/code/cachedir allows it; a damaged one is a miss. Place: $MAGNETO_CACHE_DIR, else
 * $XDG_CACHE_HOME/magneto, else ~/.cache/magneto; MAGNETO_CACHE=0 turns it off. All files together keep below
 * $MAGNETO_CACHE_MB (512): the least recently used ones go.  What killed writers left goes, too. */
#ifndef MG_DISK_CACHE_H
#define MG_DISK_CACHE_H
#include "runtime/code/kernel_cache.h"
#include "runtime/code/load_llvm.h"

typedef enum MgArtifactKind { MG_ART_object, MG_ART_plan, MG_ART_cubin, MG_ART_choice } MgArtifactKind;

bool mg_artifact_on(void); /* is there such a place? */
const void *mg_artifact_build(
    size_t *n); /* what tells this build of the library from others (the linker's build id); or NULL */
/* Mixes what the text (of a module, or that describes a graph) does not say into its key:
 * this CPU, the format version. */
MgKey mg_artifact_key(const char *text, size_t len);

typedef enum MgArtifactFound {
  MG_AF_loaded,
  MG_AF_absent,
  MG_AF_refused, /* the rules of runtime/code/cachedir forbid to read it */
  MG_AF_damaged  /* or another folder's */
} MgArtifactFound;
/* MG_AF_loaded: out->data is new; else out is empty. */
MgArtifactFound mg_artifact_find(MgArtifactKind kind, MgKey key, MgObject *out);
bool mg_artifact_load(MgArtifactKind kind, MgKey key, MgObject *out); /* the same: is it loaded? */
/* Files whose keys have the same first half and another second one: at most `most`.  Returns how many. */
uint32_t mg_artifact_near(MgArtifactKind kind, MgKey key, MgKey *out, uint32_t most);
void mg_artifact_store(MgArtifactKind kind, MgKey key,
                       const MgObject *obj); /* failure is silent: only the next start is slower */

typedef struct MgArtifactInfo {
  uint64_t nfile, ntemp, nwrong; /* in the folder now; nwrong: files that are refused */
  uint64_t bytes, limit;         /* of all of them; MAGNETO_CACHE_MB */
  uint64_t loaded, stored, damaged, refused,
      swept; /* files, by this process; swept: what killed writers left */
} MgArtifactInfo;
void mg_artifact_info(MgArtifactInfo *out);
#endif

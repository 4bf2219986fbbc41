/* Object files of earlier processes: compiled code kept on disk, so that a warm start needs no LLVM.
 * A file is found by a 128-bit key of everything that determines its contents.  Files are written under a temporary
 * name and renamed, carry a checksum, and are only read when they belong to this user; a damaged one is a miss.
 * Place: $MAGNETO_CACHE_DIR, else $XDG_CACHE_HOME/magneto, else ~/.cache/magneto; MAGNETO_CACHE=0 turns it off.
 * All files together keep below $MAGNETO_CACHE_MB (512): the least recently used ones go. */
#ifndef MG_RUNTIME_ARTIFACT_H
#define MG_RUNTIME_ARTIFACT_H
#include "runtime/kcache.h"
#include "runtime/load_llvm.h"

/* Mixes what the text does not say into the key of a module's text: this CPU, the format version. */
MgKey mg_artifact_key(const char *text, size_t len);
bool mg_artifact_load(MgKey key, MgObject *out); /* out->data is new */
void mg_artifact_store(MgKey key, const MgObject *obj); /* failure is silent: only the next start is slower */
#endif

/* The folder of the on-disk cache, and the rules for what may be read from there (SECURITY.md).
 * Code is loaded from this folder, so it and each file in it must belong to this user, and nobody else may be
 * able to write them. The folder is opened once; files are opened relative to that descriptor, so that nobody
 * can put another folder in its place. Each use looks again whether the descriptor is still that folder and
 * whether its owner and mode are still right. */
#ifndef MG_CACHEDIR_H
#define MG_CACHEDIR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
  MG_CACHE_KEY = 32, /* bytes of the folder's key */
  MG_CACHE_TEMP = 48 /* room for the name of a temporary file */
};

typedef enum MgCacheFile { MG_CF_open, MG_CF_absent, MG_CF_refused } MgCacheFile;

int mg_cachedir(void);              /* descriptor of the folder (borrowed), or -1: there is no cache */
const char *mg_cachedir_path(void); /* absolute; "" if no place is known */
const char *mg_cachedir_why(void);  /* why there is no cache; NULL: there is one */
const uint8_t *
mg_cachedir_key(void); /* MG_CACHE_KEY random bytes that only this user can read; after mg_cachedir() >= 0 */

/* What forbids to trust a file or folder of this owner and mode; NULL: nothing. */
const char *mg_cachedir_wrong(uid_t owner, mode_t mode);
/* Opens a file for reading if it obeys the rules; *size: its bytes.  Never waits, whatever the file is. */
MgCacheFile mg_cachedir_open(int dir, const char *name, int *fd, uint64_t *size);
/* A new empty file under a random name, which is written to name; -1: none could be made. */
int mg_cachedir_temp(int dir, char name[MG_CACHE_TEMP]);
bool mg_cachedir_is_temp(const char *name); /* also the names that earlier versions gave */
#endif

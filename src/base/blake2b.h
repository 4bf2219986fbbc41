/* BLAKE2b (RFC 7693): a cryptographic digest of 1 to 64 bytes, with or without a key of up to 64 bytes.
 * With a secret key the digest is a MAC: who does not have the key cannot make bytes that fit it.
 * About 1 GB/s.  Use: begin, add as often as wanted, end. */
#ifndef MG_BLAKE2B_H
#define MG_BLAKE2B_H
#include <stddef.h>
#include <stdint.h>

enum { MG_BLAKE_BLOCK = 128, MG_BLAKE_MAX = 64 /* bytes of a digest and of a key */ };

typedef struct MgBlake {
  uint64_t h[8];
  uint64_t done[2]; /* bytes that are compressed, low word first */
  unsigned char buf[MG_BLAKE_BLOCK];
  size_t n, out; /* bytes in buf; bytes of the digest */
} MgBlake;

void mg_blake_begin(MgBlake *b, size_t out, const void *key, size_t nkey); /* key: NULL if nkey is 0 */
void mg_blake_add(MgBlake *b, const void *p, size_t n);
void mg_blake_end(MgBlake *b, void *out); /* writes as many bytes as begin was told */
#endif

/* Environment variables: values and what is wrong with them.  See the header; the rules are in env.def. */
#define _GNU_SOURCE /* environ */
#include "base/env.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/notice.h"

#define ENV_PREFIX "MAGNETO_"

static const char env_channels[] =
#define DUMP(name, what) #name " "
#include "dumps.def"
    "all";
static const char env_stages[] =
#define STAGE(name) #name " "
#include "stages.def"
    "";
static const char env_switches[] = "1 0 on off true false yes no"; /* what is on is at even places */

static const struct EnvRow {
  const char *name;
  MgEnvKind kind;
  const char *kind_name, *accepted, *standard, *meaning;
} env_row[] = {
#define ENV_CHANNELS env_channels
#define ENV_STAGES env_stages
#define ENV(name, kind, accepted, standard, meaning)                                                         \
  {ENV_PREFIX #name, EK_##kind, #kind, accepted, standard, meaning},
#include "env.def"
};

/* ---- words ---- */

/* The place of the word [p, p + n) in a list, or -1. */
static int env_find(const char *list, const char *p, size_t n) {
  int at = 0;
  for (; *list; at++) {
    size_t m = strcspn(list, " ");
    if (m == n && !memcmp(list, p, n)) return at;
    list += m;
    list += strspn(list, " ");
  }
  return -1;
}

/* Are all words of p, separated by commas or blanks, in the list? */
static bool env_all_words(const char *list, const char *p) {
  for (p += strspn(p, ", "); *p; p += strspn(p, ", ")) {
    size_t n = strcspn(p, ", ");
    if (env_find(list, p, n) < 0) return false;
    p += n;
  }
  return true;
}

/* ---- numbers ---- */

/* The decimal number at *p, which moves on; false: there is none, or it is too large. */
static bool env_digits(const char **p, uint64_t *out) {
  const char *from = *p;
  for (*out = 0; **p >= '0' && **p <= '9' && *out < UINT64_MAX / 100; ++*p)
    *out = *out * 10 + (uint64_t)(**p - '0');
  return *p > from && !(**p >= '0' && **p <= '9');
}

static bool env_in_range(const char *range, const char *text, uint64_t *out) {
  uint64_t least, most;
  bool ok = env_digits(&range, &least) && *range++ == ' ' && env_digits(&range, &most);
  return ok && env_digits(&text, out) && !*text && *out >= least && *out <= most;
}

static bool env_as_span(const char *text, long *from, long *to) {
  uint64_t a, b;
  if (!env_digits(&text, &a)) return false;
  b = a;
  if (*text == '-' && (++text, !env_digits(&text, &b))) return false;
  *from = (long)a;
  *to = (long)b;
  return !*text && a >= 1 && a <= b && b <= INT32_MAX;
}

/* ---- values ---- */

static bool env_understood(const struct EnvRow *r, const char *text) {
  uint64_t n;
  long from, to;
  switch (r->kind) {
  case EK_switch: return env_find(env_switches, text, strlen(text)) >= 0;
  case EK_number: return env_in_range(r->accepted, text, &n);
  case EK_span: return env_as_span(text, &from, &to);
  case EK_word: return env_find(r->accepted, text, strlen(text)) >= 0;
  case EK_words: return env_all_words(r->accepted, text);
  case EK_path:
  case EK_tests: break;
  }
  return true;
}

const char *mg_env(MgEnv v) {
  const char *text = getenv(env_row[v].name);
  bool in_part = env_row[v].kind == EK_words; /* who uses the words passes over those that are not known */
  return text && *text && (in_part || env_understood(&env_row[v], text)) ? text : NULL;
}

bool mg_env_switch(MgEnv v, bool standard) {
  const char *text = mg_env(v);
  return text ? env_find(env_switches, text, strlen(text)) % 2 == 0 : standard;
}

uint64_t mg_env_number(MgEnv v, uint64_t standard) {
  const char *text = mg_env(v);
  uint64_t n;
  return text && env_in_range(env_row[v].accepted, text, &n) ? n : standard;
}

bool mg_env_span(MgEnv v, long *from, long *to) {
  const char *text = mg_env(v);
  return text && env_as_span(text, from, to);
}

/* ---- what is wrong ---- */

MgEnvRow mg_env_row(MgEnv v) {
  const struct EnvRow *r = &env_row[v];
  return (MgEnvRow){r->name, r->kind_name, r->accepted, r->standard, r->meaning};
}

static void env_accepted(const struct EnvRow *r, char *out, size_t n) {
  const char *words = r->kind == EK_switch ? env_switches : r->accepted;
  if (r->kind == EK_number) {
    snprintf(out, n, "whole numbers from %.*s to %s", (int)strcspn(words, " "), words,
             strchr(words, ' ') + 1);
    return;
  }
  if (r->kind == EK_span) {
    snprintf(out, n, "n and a-b, of whole numbers from 1 on");
    return;
  }
  *out = 0;
  for (size_t at = 0; *words && at < n; words += strspn(words, " ")) {
    size_t len = strcspn(words, " ");
    at += (size_t)snprintf(out + at, n - at, "%s%.*s", at ? ", " : "", (int)len, words);
    words += len;
  }
}

bool mg_env_bad(MgEnv v, char *text, size_t n) {
  const struct EnvRow *r = &env_row[v];
  const char *value = getenv(r->name);
  char accepted[MG_NOTICE_TEXT / 2];
  if (!value || !*value || env_understood(r, value)) return false;
  env_accepted(r, accepted, sizeof accepted);
  snprintf(text, n, "%s=%.80s is not understood%s; accepted are: %s", r->name, value,
           r->kind == EK_words ? ", the words that are known are used" : " and ignored", accepted);
  return true;
}

static bool env_known(const char *name, size_t n) {
  for (int i = 0; i < ENV__COUNT; i++)
    if (strlen(env_row[i].name) == n && !memcmp(env_row[i].name, name, n)) return true;
  return false;
}

static void env_unknown(const char *entry) {
  char names[MG_NOTICE_TEXT / 2] = "";
  for (int i = 0; i < ENV__COUNT; i++) {
    size_t at = strlen(names);
    if (env_row[i].kind != EK_tests)
      snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
               env_row[i].name + sizeof ENV_PREFIX - 1);
  }
  mg_notice("%.120s is ignored: magneto has no variable of this name; it has, after " ENV_PREFIX ": %s",
            entry, names);
}

void mg_env_check(void) {
  char text[MG_NOTICE_TEXT];
  for (int i = 0; i < ENV__COUNT; i++)
    if (mg_env_bad((MgEnv)i, text, sizeof text)) mg_notice("%s", text);
  for (char **e = environ; e && *e; e++) {
    size_t n = strcspn(*e, "=");
    if (!strncmp(*e, ENV_PREFIX, sizeof ENV_PREFIX - 1) && !env_known(*e, n)) env_unknown(*e);
  }
}

bool mg_strict(void) {
  static int on = -1;
  if (on < 0) on = mg_env_switch(ENV_STRICT, false);
  return on;
}

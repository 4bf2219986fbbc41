/* What vector instructions there are.  See the header. */
#include "runtime/process/cpu.h"
#include <pthread.h>
#include <string.h>
#include "base/env.h"

static const char *const cpu_names[] = {
    [CPU_base] = "x86-64", [CPU_v2] = "x86-64-v2", [CPU_v3] = "x86-64-v3", [CPU_v4] = "x86-64-v4"};
static pthread_once_t cpu_once = PTHREAD_ONCE_INIT;
static MgCpu cpu_found;
static MgCpuLevel cpu_host_level;

/* Everything that the CPU has. */
static MgCpu cpu_host(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  MgCpu c = {.level = CPU_base,
             .fma = __builtin_cpu_supports("fma"),
             .avx2 = __builtin_cpu_supports("avx2"),
             .f16c = __builtin_cpu_supports("f16c"),
             .avx512bf16 = __builtin_cpu_supports("avx512bf16")};
  if (__builtin_cpu_supports("x86-64-v2")) c.level = CPU_v2;
  if (__builtin_cpu_supports("x86-64-v3")) c.level = CPU_v3;
  if (__builtin_cpu_supports("x86-64-v4")) c.level = CPU_v4;
  c.avx512 = c.level == CPU_v4;
  c.vector_bits = c.avx512 ? 512 : c.avx2 ? 256 : 128;
  return c;
#else
  return (MgCpu){.level = CPU_base, .vector_bits = 128, .fma = true};
#endif
}

/* Takes away what is beyond the level. */
static void cpu_limit(MgCpu *c, MgCpuLevel most) {
  if (c->level < most) return;
  c->level = most;
  c->capped = true;
  c->avx512bf16 = false; /* of no level */
  c->avx512 = most == CPU_v4;
  if (most < CPU_v3) c->avx2 = c->fma = c->f16c = false;
  c->vector_bits = c->avx512 ? 512 : c->avx2 ? 256 : 128;
}

static void cpu_open(void) {
  const char *env = mg_env(ENV_CPU);
  cpu_found = cpu_host();
  cpu_host_level = cpu_found.level;
  for (MgCpuLevel l = CPU_v2; env && l <= CPU_v4; l++)
    if (!strcmp(env, cpu_names[l]) || !strcmp(env, cpu_names[l] + strlen("x86-64-")))
      cpu_limit(&cpu_found, l);
}

const MgCpu *mg_cpu(void) {
  pthread_once(&cpu_once, cpu_open);
  return &cpu_found;
}

const char *mg_cpu_cap(void) { return mg_cpu()->capped ? cpu_names[cpu_found.level] : NULL; }

const char *mg_cpu_host(void) {
  mg_cpu();
  return cpu_names[cpu_host_level];
}

/* MG_ASSERT: a broken invariant ends the process with file, line and message; one that
 * holds costs nothing else. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/assert.h"
#include "base/ctx.h"
#include "base/fork.h"
#include "check.h"

/* Runs fn in a child; its signal (0: it went on), and what it wrote on standard error. */
static int in_child(void (*fn)(void), char *text, size_t size) {
  int fd[2], status = 0;
  size_t n = 0;
  if (pipe(fd)) return -1;
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    dup2(fd[1], 2);
    fn();
    _exit(0);
  }
  close(fd[1]);
  for (ssize_t k; n + 1 < size && (k = read(fd[0], text + n, size - 1 - n)) > 0;) n += (size_t)k;
  text[n] = 0;
  close(fd[0]);
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static int asked;

static int ask(int answer) {
  asked++;
  return answer;
}

static void holds(void) { MG_ASSERT(1 + 1 == 2, "arithmetic"); }
static void broken(void) { MG_ASSERT(1 + 1 == 3, "arithmetic is off"); }

static void lock_order(void) {
  mg_fork_lock(MG_LOCK_cache);
  mg_fork_lock(MG_LOCK_fill);
}

static void lock_of_others(void) { mg_fork_unlock(MG_LOCK_op); }

static void shrink(void) {
  MgCtx c;
  mg_ctx_init(&c);
  mg_ctx_grow(&c, "four", 4, 2);
}

static void test_off(void) {
#ifdef NDEBUG
  char text[1024];
  MG_ASSERT(ask(0), "not asked");
  CHECK(!asked);
  CHECK(!in_child(broken, text, sizeof text) && !*text);
#endif
}

static void test_on(void) {
#ifndef NDEBUG
  static const struct {
    void (*fn)(void);
    const char *words;
  } row[] = {
      {broken, "arithmetic is off (1 + 1 == 3)"},
      {lock_order, "a lock is taken while"},
      {lock_of_others, "a lock is given back"},
      {shrink, "grows to less than it has"},
  };
  char text[1024];
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    CHECK(in_child(row[i].fn, text, sizeof text) == SIGABRT);
    CHECK(strstr(text, "broken invariant") && strstr(text, row[i].words));
  }
  in_child(broken, text, sizeof text);
  CHECK(strstr(text, "test_assert.c:"));
  MG_ASSERT(ask(1), "asked once");
  CHECK(asked == 1);
#endif
}

int main(void) {
  char text[1024];
  CHECK(!in_child(holds, text, sizeof text) && !*text);
  mg_fork_lock(MG_LOCK_fill); /* in the order of the list all is well */
  mg_fork_lock(MG_LOCK_notice);
  mg_fork_unlock(MG_LOCK_notice);
  mg_fork_unlock(MG_LOCK_fill);
  test_off();
  test_on();
  return test_done();
}

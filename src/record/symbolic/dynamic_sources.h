/* Which numbers and sizes the program or earlier calls have made dynamic. */
#ifndef MG_DYNAMIC_SOURCES_H
#define MG_DYNAMIC_SOURCES_H
#include "entry/guard/source_kinds.h"

typedef struct MgGuards MgGuards;

/* Is the number, or the tuple with numbers, at src known to change? */
bool mg_dynfloat_at(SrcRef src, PyObject *val);
/* The same, or is another object put there at every call, for a value of a dict behind a fixed owner: its
 * source, or 0. owner: whose instance dict it is, or NULL. */
SrcRef mg_dynfloat_key(PyObject *dict, PyObject *owner, PyObject *key, PyObject *val);
bool mg_dynfloat_listed(SrcRef src, bool unbacked);
/* torch.compiler.config.dynamic_sources or unbacked_sources: a list of compiled patterns, new; NULL: none. */
PyObject *mg_dynfloat_sources(bool unbacked);
/* The same for an attribute of a class that is a number, or a tuple with some. */
SrcRef mg_dynfloat_class_attr(PyTypeObject *t, PyObject *name, PyObject *val);
bool mg_transient_class(PyTypeObject *t); /* is it one of these, for the code that is being recorded? */
/* Guards what a dict that is known by identity has under a key: that very object, or, where the program keeps
 * assigning tensors or containers, whatever is there (its source; else 0).  owner: whose
 * instance dict it is, or NULL. */
SrcRef mg_dynfloat_guard_key(MgGuards *g, PyObject *dict, PyObject *owner, PyObject *name, PyObject *v);
/* Have ints among the keys of this dict been others at other calls?  Then each key has a source. */
bool mg_dynfloat_keys(SrcRef src, PyObject *dict, PyObject *keys);
/* Has this container held another number of items at many other calls?  Then its length is not guarded. */
bool mg_dynfloat_length(SrcRef src, PyObject *container);
/* Have strings that change led to the recompile limit?  Then what looks at one breaks the graph. */
bool mg_dynfloat_texts(void);
/* Has there been another string at src at other calls? */
bool mg_dynfloat_text(SrcRef src);
/* Have iterators been elsewhere at other calls of this code? */
bool mg_dynfloat_iterators(void);
/* compile(dynamic=): False, ints are constants; True, or torch's setting of the same meaning, numbers among
 * the arguments are inputs at once. */
int mg_dynfloat_setting(PyObject *val);
bool mg_dynfloat_changes(PyObject *dict, PyObject *key, PyObject *v);
bool mg_dynfloat_knows(PyObject *name);
SrcRef mg_dynfloat_key_source(PyObject *dict, PyObject *owner, PyObject *key);
/* Is it known that the program keeps putting others in the place of v? */
bool mg_dynfloat_moves(PyObject *dict, PyObject *key, PyObject *v);
#endif

/* Block: an append-only buffer of rows. Tap: a callable that adds one site's tensor to a block.
 *
 * All methods need the GIL; it is released while a large tensor is reduced, so a row is placed only when it is complete. */
#ifndef TENSONDE_BLOCK_H
#define TENSONDE_BLOCK_H

#include <structmember.h>
#include <time.h>

#include "tensor.h"

enum { RELEASE_GIL_ABOVE = 32768, GROUP = 128 };

/* Tensors that are digested together: small ones one by one, then the large ones by all threads at once. */
typedef struct {
    Row rows[GROUP];
    Job jobs[GROUP];
    Partial parts[GROUP];
    int large[GROUP];    /* of each job, the place in `rows` */
    int negated[GROUP];  /* of each row; -1 if there is none */
    Borrowed held[GROUP];
} Group;

static const Isa *isa;

typedef struct {
    PyObject_HEAD
    Row *rows;
    Py_ssize_t capacity, length;
    long long step, nanos, skipped, dropped;
    unsigned char phase;
    int threads;
    PyObject *on_nonfinite, *on_full;
    Group *group; /* NULL until it is needed, and while it is in use */
} Block;

static PyTypeObject *Tap_type;

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* What a callback takes is not the digest's time: a debugger may be waiting in it. */
static PyObject *call_back(Block *self, PyObject *callback, PyObject *arguments)
{
    long long start = now();
    Py_INCREF(callback);
    PyObject *answer = PyObject_CallObject(callback, arguments);
    Py_DECREF(callback);
    self->nanos -= now() - start;
    return answer;
}

/* A free row, or NULL: with an error set if the callback raised, without if the row is dropped. */
static Row *place(Block *self)
{
    if (self->length == self->capacity && self->on_full && self->on_full != Py_None) {
        PyObject *answer = call_back(self, self->on_full, NULL);
        if (!answer)
            return NULL;
        Py_DECREF(answer);
    }
    if (self->length == self->capacity) {
        self->dropped++;
        return NULL;
    }
    return &self->rows[self->length++];
}

static Py_ssize_t append(Block *self, const Row *row)
{
    Row *target = place(self);
    if (!target)
        return PyErr_Occurred() ? -2 : -1;
    *target = *row;
    return target - self->rows;
}

static int report_nonfinite(Block *self, int site, Py_ssize_t index, PyObject *tensor)
{
    PyObject *arguments = Py_BuildValue("inO", site, index, tensor);
    PyObject *answer = arguments ? call_back(self, self->on_nonfinite, arguments) : NULL;
    Py_XDECREF(arguments);
    Py_XDECREF(answer);
    return answer != NULL;
}

/* Adds a complete row; returns its index, -1 if it was dropped, -2 with an error set if a callback raised. */
static Py_ssize_t add_row(Block *self, Row *row, int negated, PyObject *tensor)
{
    if (negated)
        row_negate(row);
    Py_ssize_t index = append(self, row);
    if (index >= 0 && (row->nan | row->pos_inf | row->neg_inf) && self->on_nonfinite && self->on_nonfinite != Py_None)
        if (!report_nonfinite(self, row->site, index, tensor))
            return -2;
    return index;
}

static Py_ssize_t add_view(Block *self, int site, int call, const View *view, int negated, PyObject *tensor)
{
    Row row = {.step = self->step, .site = site, .call = call, .phase = self->phase};
    if (view->count > RELEASE_GIL_ABOVE) {
        int threads = self->threads;
        Py_BEGIN_ALLOW_THREADS
        digest(isa, view, threads, &row);
        Py_END_ALLOW_THREADS
    } else
        digest(isa, view, 1, &row);
    return add_row(self, &row, negated, tensor);
}

static Py_ssize_t add_tensor(Block *self, int site, int call, PyObject *tensor)
{
    Borrowed borrowed;
    Py_ssize_t index = -1;
    if (borrow(tensor, &borrowed))
        index = add_view(self, site, call, &borrowed.view, borrowed.negated, tensor);
    else
        self->skipped++;
    release(&borrowed);
    return index;
}

static PyObject *as_answer(Py_ssize_t index) { return index == -2 ? NULL : PyLong_FromSsize_t(index); }

/* Reads (first, ..., call=0): `fixed` positional arguments and one optional one, which may be named. */
static int read_call(PyObject *const *args, Py_ssize_t given, PyObject *names, Py_ssize_t fixed, const char *method,
                     int *site, int *call)
{
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    int fine = given >= fixed && given + named <= fixed + 1;
    if (fine && named)
        fine = PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "call") == 0;
    if (!fine) {
        PyErr_Format(PyExc_TypeError, "Block.%s takes %zd arguments and call=0, got %zd", method, fixed, given + named);
        return 0;
    }
    *site = (int)PyLong_AsLong(args[0]);
    *call = given + named > fixed ? (int)PyLong_AsLong(args[fixed]) : 0;
    return !PyErr_Occurred();
}

static PyObject *Block_add(PyObject *object, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Block *self = (Block *)object;
    long long start = now();
    int site, call;
    if (!read_call(args, given, names, 2, "add", &site, &call))
        return NULL;
    Py_ssize_t index = add_tensor(self, site, call, args[1]);
    self->nanos += now() - start;
    return as_answer(index);
}

static PyObject *Block_add_difference(PyObject *object, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Block *self = (Block *)object;
    long long start = now();
    int site, call;
    if (!read_call(args, given, names, 3, "add_difference", &site, &call))
        return NULL;
    Borrowed new, old = {.held = 0};
    View difference;
    Py_ssize_t index = -1;
    if (borrow(args[1], &new) && borrow(args[2], &old) && subtract(&new, &old, &difference))
        index = add_view(self, site, call, &difference, 0, args[1]);
    else
        self->skipped++;
    release(&new);
    release(&old);
    self->nanos += now() - start;
    return as_answer(index);
}

/* Digests up to GROUP tensors, then adds their rows in order. Returns how many were added; an error may be set. */
static Py_ssize_t add_group(Block *self, Group *group, PyObject *sites, PyObject *tensors, int call, Py_ssize_t from,
                            Py_ssize_t n)
{
    int jobs = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *tensor = PyTuple_GetItem(tensors, from + i);
        Borrowed *held = &group->held[jobs];
        group->negated[i] = -1;
        if (tensor == Py_None)
            continue;
        int site = (int)PyLong_AsLong(PyTuple_GetItem(sites, from + i));
        if (PyErr_Occurred())
            break;
        int fine = borrow(tensor, held);
        if (fine) {
            group->rows[i] = (Row){.step = self->step, .site = site, .call = call, .phase = self->phase};
            group->negated[i] = held->negated;
        } else
            self->skipped++;
        if (fine && held->view.count > RELEASE_GIL_ABOVE) {
            job_begin(isa, &held->view, &group->jobs[jobs]);
            group->large[jobs++] = (int)i;
            continue; /* held until it is reduced */
        }
        if (fine)
            digest(isa, &held->view, 1, &group->rows[i]);
        release(held);
    }
    if (jobs) {
        int threads = self->threads;
        Py_BEGIN_ALLOW_THREADS
        reduce_together(group->jobs, jobs, threads, group->parts);
        for (int j = 0; j < jobs; j++)
            job_end(&group->jobs[j], &group->parts[j], &group->rows[group->large[j]]);
        Py_END_ALLOW_THREADS
    }
    for (int j = 0; j < jobs; j++)
        release(&group->held[j]);
    Py_ssize_t added = 0;
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++)
        if (group->negated[i] >= 0)
            added += add_row(self, &group->rows[i], group->negated[i], PyTuple_GetItem(tensors, from + i)) >= 0;
    return added;
}

static PyObject *Block_add_many(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Block *self = (Block *)object;
    if (given != 2 && given != 3) {
        PyErr_Format(PyExc_TypeError, "Block.add_many takes sites, tensors and a call, got %zd arguments", given);
        return NULL;
    }
    long long start = now();
    int call = given == 3 ? (int)PyLong_AsLong(args[2]) : 0;
    if (PyErr_Occurred())
        return NULL;
    /* Own lists and an own group: a callback may change the caller's, or add tensors itself. */
    PyObject *sites = PySequence_Tuple(args[0]), *tensors = sites ? PySequence_Tuple(args[1]) : NULL;
    Group *group = self->group ? self->group : malloc(sizeof(Group));
    self->group = NULL;
    Py_ssize_t added = 0, n = tensors ? PyTuple_Size(tensors) : 0;
    if (tensors && PyTuple_Size(sites) != n)
        PyErr_Format(PyExc_ValueError, "Block.add_many got %zd sites for %zd tensors", PyTuple_Size(sites), n);
    if (!group)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i += GROUP)
        added += add_group(self, group, sites, tensors, call, i, n - i < GROUP ? n - i : GROUP);
    free(self->group);
    self->group = group;
    Py_XDECREF(sites);
    Py_XDECREF(tensors);
    self->nanos += now() - start;
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(added);
}

static PyObject *Block_reserve(PyObject *object, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Block *self = (Block *)object;
    int site, call;
    if (!read_call(args, given, names, 1, "reserve", &site, &call))
        return NULL;
    Row row = {.step = self->step, .site = site, .call = call, .phase = self->phase};
    row_fill(&row, &NOTHING, 0);
    return as_answer(append(self, &row));
}

static PyObject *Block_clear_rows(PyObject *object, PyObject *unused)
{
    (void)unused;
    ((Block *)object)->length = 0;
    Py_RETURN_NONE;
}

static Py_ssize_t Block_length(PyObject *object) { return ((Block *)object)->length; }

static int Block_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    Block *self = (Block *)object;
    return PyBuffer_FillInfo(view, object, self->rows, self->capacity * (Py_ssize_t)sizeof(Row), 0, flags);
}

static PyObject *Block_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"capacity", NULL};
    Py_ssize_t capacity;
    if (!PyArg_ParseTupleAndKeywords(args, names, "n:Block", keywords, &capacity))
        return NULL;
    if (capacity < 1 || capacity > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(Row)) {
        PyErr_Format(PyExc_ValueError, "a Block needs a capacity of at least 1 row, got %zd", capacity);
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Block *self = (Block *)allocate(type, 0);
    if (!self)
        return NULL;
    self->threads = 1;
    self->capacity = capacity;
    self->rows = calloc((size_t)capacity, sizeof(Row));
    if (!self->rows) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int Block_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Block *)object)->on_nonfinite);
    Py_VISIT(((Block *)object)->on_full);
    return 0;
}

static int Block_drop(PyObject *object)
{
    Py_CLEAR(((Block *)object)->on_nonfinite);
    Py_CLEAR(((Block *)object)->on_full);
    return 0;
}

static void free_object(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release_memory = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release_memory(object);
    Py_DECREF((PyObject *)type);
}

static void Block_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    Block_drop(object);
    free(((Block *)object)->rows);
    free(((Block *)object)->group);
    free_object(object);
}

/* Tap. */
typedef struct {
    PyObject_HEAD
    Block *block;
    int site, call;
} Tap;

static PyObject *Block_tap(PyObject *object, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    int site, call;
    if (!read_call(args, given, names, 1, "tap", &site, &call))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(Tap_type, Py_tp_alloc);
    Tap *tap = (Tap *)allocate(Tap_type, 0);
    if (!tap)
        return NULL;
    Py_INCREF(object);
    tap->block = (Block *)object;
    tap->site = site;
    tap->call = call;
    return (PyObject *)tap;
}

/* Called by a framework in the middle of the user's backward pass: an error of ours is reported and goes no further,
 * but what ends a program (SystemExit, KeyboardInterrupt) passes. */
static PyObject *Tap_call(PyObject *object, PyObject *args, PyObject *names)
{
    Tap *self = (Tap *)object;
    (void)names;
    if (self->block && PyTuple_Size(args) > 0) {
        long long start = now();
        Block *block = self->block;
        Py_INCREF((PyObject *)block);
        int raised = add_tensor(block, self->site, self->call, PyTuple_GetItem(args, 0)) == -2;
        block->nanos += now() - start;
        Py_DECREF((PyObject *)block);
        if (raised && !PyErr_ExceptionMatches(PyExc_Exception))
            return NULL;
        if (raised)
            PyErr_WriteUnraisable(object);
    }
    Py_RETURN_NONE;
}

static int Tap_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Tap *)object)->block);
    return 0;
}

static int Tap_drop(PyObject *object)
{
    Py_CLEAR(((Tap *)object)->block);
    return 0;
}

static void Tap_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    Tap_drop(object);
    free_object(object);
}

#define FAST(function) (PyCFunction)(void (*)(void))function
static PyMethodDef Block_methods[] = {
    {"add", FAST(Block_add), METH_FASTCALL | METH_KEYWORDS, "add(site, tensor, call=0) -> row index, or -1"},
    {"add_difference", FAST(Block_add_difference), METH_FASTCALL | METH_KEYWORDS,
     "add_difference(site, new, old, call=0) -> row index of the digest of new - old, or -1"},
    {"add_many", FAST(Block_add_many), METH_FASTCALL, "add_many(sites, tensors, call=0) -> number of rows added"},
    {"reserve", FAST(Block_reserve), METH_FASTCALL | METH_KEYWORDS, "reserve(site, call=0) -> index of an empty row, or -1"},
    {"tap", FAST(Block_tap), METH_FASTCALL | METH_KEYWORDS, "tap(site, call=0) -> Tap"},
    {"clear", Block_clear_rows, METH_NOARGS, "clear(): forgets all rows"},
    {0}};
static PyMemberDef Block_members[] = {
    {"capacity", T_PYSSIZET, offsetof(Block, capacity), READONLY, NULL},
    {"step", T_LONGLONG, offsetof(Block, step), 0, NULL},
    {"phase", T_UBYTE, offsetof(Block, phase), 0, NULL},
    {"threads", T_INT, offsetof(Block, threads), 0, NULL},
    {"nanos", T_LONGLONG, offsetof(Block, nanos), 0, NULL},
    {"skipped", T_LONGLONG, offsetof(Block, skipped), 0, NULL},
    {"dropped", T_LONGLONG, offsetof(Block, dropped), 0, NULL},
    {"on_nonfinite", T_OBJECT, offsetof(Block, on_nonfinite), 0, NULL},
    {"on_full", T_OBJECT, offsetof(Block, on_full), 0, NULL},
    {0}};
static PyType_Slot Block_slots[] = {
    {Py_tp_doc, "Block(capacity): an append-only buffer of digest rows."},
    {Py_tp_new, Block_new},
    {Py_tp_dealloc, Block_dealloc},
    {Py_tp_traverse, Block_traverse},
    {Py_tp_clear, Block_drop},
    {Py_tp_methods, Block_methods},
    {Py_tp_members, Block_members},
    {Py_sq_length, Block_length},
    {Py_bf_getbuffer, Block_getbuffer},
    {0}};
static PyType_Spec Block_spec = {"tensonde.digest._kernel.Block", sizeof(Block), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, Block_slots};

static PyMemberDef Tap_members[] = {
    {"site", T_INT, offsetof(Tap, site), 0, NULL},
    {"call", T_INT, offsetof(Tap, call), 0, NULL},
    {"block", T_OBJECT, offsetof(Tap, block), READONLY, NULL},
    {0}};
static PyType_Slot Tap_slots[] = {
    {Py_tp_doc, "A callable that adds the digest of its first argument to a Block; made by Block.tap."},
    {Py_tp_dealloc, Tap_dealloc},
    {Py_tp_traverse, Tap_traverse},
    {Py_tp_clear, Tap_drop},
    {Py_tp_call, Tap_call},
    {Py_tp_members, Tap_members},
    {0}};
static PyType_Spec Tap_spec = {"tensonde.digest._kernel.Tap", sizeof(Tap), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, Tap_slots};

#endif

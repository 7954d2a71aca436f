/* From a Python object to a View: any tensor type with the DLPack exchange interface, or anything with a buffer. */
#ifndef TENSONDE_TENSOR_H
#define TENSONDE_TENSOR_H

#include <Python.h>

#include "dlpack.h"
#include "walk.h"

/* What is known about a type of tensor: its exchange interface, or the function that packs one for DLPack where torch is too old to have that
 * (2.8). `is_neg` is a torch method: true if the memory holds the negated values. */
typedef struct {
    PyTypeObject *type;
    const ExchangeApi *api;
    PyObject *pack;
    PyObject *is_neg;
} TensorType;

/* A borrowed view; `release` must be called if `held`. */
typedef struct {
    View view;
    Py_buffer buffer;
    PyObject *packed;
    int held, negated;
} Borrowed;

static TensorType known_types[16];
static int known_count;

/* torch._C, imported long ago by whoever made the tensor; borrowed. */
static PyObject *torch_c(void)
{
    static PyObject *module;
    if (!module)
        module = PyImport_ImportModule("torch._C");
    return module;
}

/* `torch._C._to_dlpack` for a tensor of old torch; NULL for other types. A type with a dispatch of its own is left alone: packing calls
 * `as_strided`, which would run its code. */
static PyObject *old_pack(PyTypeObject *type)
{
    PyObject *dispatch = PyObject_GetAttrString((PyObject *)type, "__torch_dispatch__");
    PyObject *module = dispatch ? torch_c() : NULL;
    PyObject *plain = module ? PyObject_GetAttrString(module, "_disabled_torch_dispatch_impl") : NULL;
    PyObject *pack = plain && plain == dispatch ? PyObject_GetAttrString(module, "_to_dlpack") : NULL;
    Py_XDECREF(dispatch);
    Py_XDECREF(plain);
    return pack;
}

/* The tensor in a capsule, which holds it. Where dispatch modes are active, they do not see it. */
static PyObject *packed(PyObject *pack, PyObject *object)
{
    PyObject *depth = PyObject_CallMethod(torch_c(), "_len_torch_dispatch_stack", NULL);
    long modes = depth ? PyLong_AsLong(depth) : -1;
    Py_XDECREF(depth);
    PyErr_Clear();
    PyObject *off = NULL, *entered = NULL;
    if (modes != 0) {
        off = PyObject_CallMethod(torch_c(), "_DisableTorchDispatch", NULL);
        entered = off ? PyObject_CallMethod(off, "__enter__", NULL) : NULL;
        Py_XDECREF(entered);
        if (!entered) {
            Py_XDECREF(off);
            return NULL;
        }
    }
    PyObject *capsule = PyObject_CallFunctionObjArgs(pack, object, NULL);
    if (off) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        PyObject *left = PyObject_CallMethod(off, "__exit__", "OOO", Py_None, Py_None, Py_None);
        Py_XDECREF(left);
        Py_DECREF(off);
        PyErr_Restore(type, value, trace);
    }
    return capsule;
}

/* NULL if the type has no exchange interface that we can read. Types are kept for ever, so that an address that was
 * looked up never comes to mean another type. When there is no place left (half of them are for tensors), the type is
 * looked up every time. */
static const TensorType *tensor_type(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    for (int i = 0; i < known_count; i++)
        if (known_types[i].type == type)
            return known_types[i].api || known_types[i].pack ? &known_types[i] : NULL;
    TensorType found = {.type = type};
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    if (capsule && PyCapsule_CheckExact(capsule)) {
        const ExchangeApi *api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        if (api && api->major == 1 && api->tensor_from_object)
            found.api = api;
    }
    PyErr_Clear();
    if (!found.api)
        found.pack = old_pack(type);
    int readable = found.api || found.pack;
    if (readable)
        found.is_neg = PyObject_GetAttrString((PyObject *)type, "is_neg");
    Py_XDECREF(capsule);
    PyErr_Clear();
    if (known_count < (readable ? 16 : 8)) {
        Py_INCREF((PyObject *)type);
        known_types[known_count++] = found;
        return readable ? &known_types[known_count - 1] : NULL;
    }
    static TensorType passing;
    Py_XDECREF(passing.is_neg);
    Py_XDECREF(passing.pack);
    passing = found;
    return readable ? &passing : NULL;
}

static int dtype_of_dlpack(const DLTensor *tensor)
{
    if (tensor->lanes != 1)
        return -1;
    switch (tensor->code << 8 | tensor->bits) {
    case CODE_FLOAT << 8 | 64: return F64;
    case CODE_FLOAT << 8 | 32: return F32;
    case CODE_FLOAT << 8 | 16: return F16;
    case CODE_BFLOAT << 8 | 16: return BF16;
    case CODE_INT << 8 | 64: return I64;
    case CODE_INT << 8 | 32: return I32;
    case CODE_INT << 8 | 16: return I16;
    case CODE_INT << 8 | 8: return I8;
    case CODE_UINT << 8 | 64: return U64;
    case CODE_UINT << 8 | 32: return U32;
    case CODE_UINT << 8 | 16: return U16;
    case CODE_UINT << 8 | 8: return U8;
    case CODE_BOOL << 8 | 8: return BOOL;
    case CODE_COMPLEX << 8 | 64: return C64;
    case CODE_COMPLEX << 8 | 128: return C128;
    case CODE_E4M3FN << 8 | 8: return F8_E4M3FN;
    case CODE_E5M2 << 8 | 8: return F8_E5M2;
    case CODE_E4M3FNUZ << 8 | 8: return F8_E4M3FNUZ;
    case CODE_E5M2FNUZ << 8 | 8: return F8_E5M2FNUZ;
    case CODE_E8M0FNU << 8 | 8: return F8_E8M0FNU;
    }
    return -1;
}

static int dtype_of_format(const char *format, Py_ssize_t size)
{
    if (!format)
        return U8;
    if (*format == '@' || *format == '=' || (*format == '<' && PY_LITTLE_ENDIAN))
        format++;
    int complex = *format == 'Z';
    format += complex;
    if (format[0] == 0 || format[1] != 0)
        return -1;
    if (complex)
        return *format == 'f' ? C64 : *format == 'd' ? C128 : -1;
    switch (*format) {
    case 'd': return size == 8 ? F64 : -1;
    case 'f': return F32;
    case 'e': return F16;
    case '?': return BOOL;
    case 'b': case 'h': case 'i': case 'l': case 'q':
        return size == 8 ? I64 : size == 4 ? I32 : size == 2 ? I16 : I8;
    case 'B': case 'H': case 'I': case 'L': case 'Q':
        return size == 8 ? U64 : size == 4 ? U32 : size == 2 ? U16 : U8;
    }
    return -1;
}

/* torch takes milliseconds to raise for a tensor that it cannot export (it collects a C++ stack trace), so after the first
 * time the usual causes are asked for beforehand. A run that has no such tensor never pays for the questions. */
static int careful;

static int answers(PyObject *object, PyObject *question, PyObject *wanted)
{
    PyObject *answer = PyObject_GetAttr(object, question);
    Py_XDECREF(answer); /* only compared from here on */
    PyErr_Clear();
    return answer == wanted;
}

static int looks_exportable(const TensorType *type, PyObject *object)
{
    static PyObject *strided, *layout, *is_meta, *is_quantized, *is_nested;
    if (!type->is_neg) /* not torch: nothing is known to be slow */
        return 1;
    if (!strided) {
        layout = PyUnicode_InternFromString("layout");
        is_meta = PyUnicode_InternFromString("is_meta");
        is_quantized = PyUnicode_InternFromString("is_quantized");
        is_nested = PyUnicode_InternFromString("is_nested");
        PyObject *torch = PyImport_ImportModule("torch"); /* imported long ago, by whoever made the tensor */
        strided = torch ? PyObject_GetAttrString(torch, "strided") : NULL;
        Py_XDECREF(torch);
        PyErr_Clear();
    }
    return answers(object, layout, strided) && answers(object, is_meta, Py_False) &&
           answers(object, is_quantized, Py_False) && answers(object, is_nested, Py_False);
}

static int borrow_tensor(const TensorType *type, PyObject *object, Borrowed *out)
{
    DLTensor tensor = {0};
    View *view = &out->view;
    if (careful && !looks_exportable(type, object))
        return 0;
    if (type->api) {
        if (type->api->tensor_from_object(object, &tensor) != 0) {
            careful = 1;
            return 0;
        }
    } else {
        PyObject *pack = type->pack;
        Py_INCREF(pack);
        out->packed = packed(pack, object);
        Py_DECREF(pack);
        const DLTensor *shown = out->packed ? PyCapsule_GetPointer(out->packed, "dltensor") : NULL;
        if (!shown) {
            careful = 1;
            return 0;
        }
        tensor = *shown;
    }
    if (tensor.device_type != DEVICE_CPU && tensor.device_type != DEVICE_CUDA_HOST && tensor.device_type != DEVICE_ROCM_HOST)
        return 0;
    int dtype = dtype_of_dlpack(&tensor);
    if (dtype < 0 || tensor.ndim < 0 || tensor.ndim > MAX_DIMS)
        return 0;
    int64_t count = 1;
    int in_row = 1, item = ITEM_SIZE[dtype];
    for (int d = tensor.ndim - 1; d >= 0; d--) {
        int64_t stride = tensor.strides ? tensor.strides[d] : count;
        view->size[d] = tensor.shape[d];
        view->stride[0][d] = stride * item;
        in_row &= stride == count || tensor.shape[d] == 1;
        count *= tensor.shape[d];
    }
    view->operands = 1;
    view->dims = tensor.ndim;
    view->dtype = dtype;
    view->count = count;
    view->base[0] = (const char *)tensor.data + tensor.byte_offset;
    /* No memory behind it: FakeTensor, functional and wrapper tensors, freed storage. */
    if (count > 0 && !tensor.data)
        return 0;
    /* The imaginary part of a conjugate view lies negated in memory and DLPack does not tell. Such a view is never in a
     * row (it skips the real parts) unless it has one element, so that others need not ask. |z| is the same anyhow. */
    if ((!in_row || count == 1) && type->is_neg && dtype <= BF16) {
        PyObject *is_neg = type->is_neg;
        Py_INCREF(is_neg); /* a subclass may run any code in there, and so forget the type */
        PyObject *answer = PyObject_CallFunctionObjArgs(is_neg, object, NULL);
        Py_DECREF(is_neg);
        if (!answer)
            return 0;
        out->negated = answer == Py_True;
        Py_DECREF(answer);
    }
    return 1;
}

static int borrow_buffer(PyObject *object, Borrowed *out)
{
    View *view = &out->view;
    if (PyBytes_Check(object) || PyByteArray_Check(object) || PyMemoryView_Check(object))
        return 0; /* bytes are not numbers */
    if (PyObject_GetBuffer(object, &out->buffer, PyBUF_RECORDS_RO) != 0)
        return 0;
    out->held = 1;
    Py_buffer *buffer = &out->buffer;
    int dtype = dtype_of_format(buffer->format, buffer->itemsize);
    if (dtype < 0 || buffer->ndim > MAX_DIMS || ITEM_SIZE[dtype] != buffer->itemsize)
        return 0;
    view->operands = 1;
    view->dims = buffer->ndim;
    view->dtype = dtype;
    view->base[0] = buffer->buf;
    view->count = 1;
    for (int d = 0; d < buffer->ndim; d++) {
        view->size[d] = buffer->shape[d];
        view->stride[0][d] = buffer->strides[d];
        view->count *= buffer->shape[d];
    }
    return 1;
}

/* Returns 0, with no Python error set, for whatever cannot be digested. Call `release` in either case. */
static int borrow(PyObject *object, Borrowed *out)
{
    out->held = out->negated = 0;
    out->packed = NULL;
    if (object == Py_None)
        return 0;
    const TensorType *type = tensor_type(object);
    int fine = type ? borrow_tensor(type, object, out) : PyObject_CheckBuffer(object) && borrow_buffer(object, out);
    if (!fine)
        PyErr_Clear();
    return fine;
}

static void release(Borrowed *borrowed)
{
    if (borrowed->held)
        PyBuffer_Release(&borrowed->buffer);
    borrowed->held = 0;
    Py_XDECREF(borrowed->packed);
    borrowed->packed = NULL;
}

/* Makes `out` the difference new - old. Both must have one dtype and one shape. */
static int subtract(const Borrowed *new, const Borrowed *old, View *out)
{
    const View *a = &new->view, *b = &old->view;
    if (a->dtype != b->dtype || a->dims != b->dims || new->negated || old->negated || a->dtype == C64 || a->dtype == C128)
        return 0;
    for (int d = 0; d < a->dims; d++)
        if (a->size[d] != b->size[d])
            return 0;
    *out = *a;
    out->operands = 2;
    out->base[1] = b->base[0];
    memcpy(out->stride[1], b->stride[0], sizeof out->stride[1]);
    return 1;
}

#endif

/* tensonde.digest._kernel: digests of tensors in CPU memory, in one pass, with no framework's headers.
 *
 *   row.h     a row and the partial statistics that add up to one
 *   chunk.h   the reduction of one chunk, compiled once for every instruction set by isa.h
 *   team.h    several threads for one piece of work
 *   walk.h    from tensors in memory to rows: order, chunks, threads, histogram
 *   tensor.h  from a Python object to memory
 *   block.h   the types Block and Tap
 *   pair.h    how far two buffers are apart
 *   sketch.h  scalar products with fixed signs
 *
 * `reference.py` says what every field means; the tests hold this to it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "block.h"
#include "pair.h"
#include "sketch.h"

static PyObject *isa_name(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(isa->name);
}

static PyMethodDef methods[] = {
    {"isa", isa_name, METH_NOARGS, "isa() -> the instruction set in use; TENSONDE_ISA overrides the choice at import"},
    {"pair", pair_of, METH_VARARGS,
     "pair(a, b, dtype) -> (sum (a-b)^2, sum a^2, sum b^2, sum ab, max |a-b|, max ULP, whether any is not finite)"},
    {"sketch", sketch_of, METH_VARARGS, "sketch(tensor, signs) -> its eight scalar products; None if it cannot be read"},
    {0}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "tensonde.digest._kernel", .m_size = -1,
                                        .m_methods = methods};

PyMODINIT_FUNC PyInit__kernel(void)
{
    isa = isa_choose(getenv("TENSONDE_ISA"));
    float8_fill();
    team_prepare();
    sketch_prepare();
    PyObject *module = PyModule_Create(&definition), *block = PyType_FromSpec(&Block_spec);
    Tap_type = (PyTypeObject *)PyType_FromSpec(&Tap_spec);
    if (!module || !block || !Tap_type || PyModule_AddObjectRef(module, "Block", block) < 0 ||
        PyModule_AddObjectRef(module, "Tap", (PyObject *)Tap_type) < 0) {
        Py_XDECREF(module);
        module = NULL;
    }
    Py_XDECREF(block);
    return module;
}

/* The part of the DLPack 1.x interface that we read: how a framework shows a tensor to C without its headers.
 * Facts after the DLPack specification (github.com/dmlc/dlpack). */
#ifndef TENSONDE_DLPACK_H
#define TENSONDE_DLPACK_H

#include <stdint.h>

enum { DEVICE_CPU = 1, DEVICE_CUDA_HOST = 3, DEVICE_ROCM_HOST = 11 };
enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_BFLOAT = 4, CODE_COMPLEX = 5, CODE_BOOL = 6 };
enum { CODE_E4M3FN = 10, CODE_E4M3FNUZ = 11, CODE_E5M2 = 12, CODE_E5M2FNUZ = 13, CODE_E8M0FNU = 14 };

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides in elements; may be NULL before 1.2 for contiguous tensors */
    uint64_t byte_offset;
} DLTensor;

typedef struct {
    uint32_t major, minor;
    void *previous;
    void *allocate, *managed_from_object, *object_from_managed;
    /* Borrows: valid while the object is. Returns 0, or -1 with a Python error set. May be NULL. */
    int (*tensor_from_object)(void *object, DLTensor *out);
    void *work_stream;
} ExchangeApi;

#endif

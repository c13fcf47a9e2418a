/* Result codes of the CUDA driver API: their names, their texts, and the codes for errnos. See cuda_api.h. */
#include "cuda_api.h"

#include <errno.h>
#include <stddef.h>

CUresult cuda_result_from_errno(int error) {
    if (error == 0) return CUDA_SUCCESS;
    if (error == ENOENT || error == EPROTO) return CUDA_ERROR_NO_DEVICE;
    if (error == EACCES || error == EPERM || error == EROFS) return CUDA_ERROR_NOT_PERMITTED;
    return CUDA_ERROR_OPERATING_SYSTEM;
}

static const struct {
    CUresult code;
    const char *name;
    const char *text;
} ERRORS[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM",
     "OS call failed or operation not supported on this OS"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult describe(CUresult code, const char **out, int name) {
    if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    for (unsigned i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].code == code) *out = name ? ERRORS[i].name : ERRORS[i].text;
    return *out == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **out) { return describe(code, out, 1); }
EXPORT CUresult cuGetErrorString(CUresult code, const char **out) { return describe(code, out, 0); }

const struct cuda_symbol cuda_api_symbols[] = {
    {"cuGetErrorName", (void *)cuGetErrorName},
    {"cuGetErrorString", (void *)cuGetErrorString},
    {NULL, NULL},
};

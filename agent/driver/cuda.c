/*
 * libcuda.so.1 of the fake driver: cuGetProcAddress, which returns every entry point by its name.
 *
 * The agent and the programs of the tests load the library as they load the real one. The state of every process is in
 * the shared file, so NVML and every agent see which processes are checkpointed.
 */
#include "cuda_api.h"
#include "cuda_checkpoint.h"
#include "cuda_devices.h"
#include "cuda_memory.h"

#include <stdint.h>
#include <string.h>

enum { CU_GET_PROC_ADDRESS_SUCCESS = 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1 };

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

static const struct cuda_symbol own_symbols[] = {
    {"cuGetProcAddress", (void *)cuGetProcAddress_v2},
    {"cuGetProcAddress_v2", (void *)cuGetProcAddress_v2},
    {NULL, NULL},
};

static void *find_symbol(const char *name) {
    static const struct cuda_symbol *const TABLES[] = {own_symbols, cuda_api_symbols, cuda_devices_symbols,
                                                       cuda_memory_symbols, cuda_checkpoint_symbols};
    for (unsigned i = 0; i < sizeof TABLES / sizeof *TABLES; i++)
        for (const struct cuda_symbol *symbol = TABLES[i]; symbol->name != NULL; symbol++)
            if (strcmp(symbol->name, name) == 0) return symbol->function;
    return NULL;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    (void)version;
    (void)flags;
    if (symbol == NULL || function == NULL) return CUDA_ERROR_INVALID_VALUE;
    *function = find_symbol(symbol);
    if (status != NULL)
        *status = *function != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/*
 * The shared state of the fake driver: one mmap'd file that the daemon (gpud) writes and both libraries read.
 *
 * Who writes what, so that no writer can undo another:
 *   measured part of a GPU   the daemon, each sample
 *   faults of a GPU          `podium-fake-gpud set`
 *   checkpoints              libcuda.so.1 (the checkpoint state machine of each process)
 * Every writer holds an OFD lock on the file (the kernel drops it when the writer dies) and makes `sequence` odd while it
 * writes. Readers copy and try again while it is odd or has moved. A writer that was killed midway leaves it odd: the next
 * writer makes it even again, and readers give up after 50 ms and take what is there: every field is written whole,
 * so the worst they can see is a mix of two samples.
 */
#ifndef PODIUM_FAKE_DRIVER_STATE_H
#define PODIUM_FAKE_DRIVER_STATE_H

#include <stddef.h>
#include <stdint.h>

#define STATE_MAGIC "PODFAKE"
#define STATE_VERSION 1u
#define STATE_PATH_ENV "PODIUM_FAKE_DRIVER_STATE"
#define STATE_PATH_DEFAULT "/var/lib/podium-fake-driver/state"
#define DRIVER_VERSION "610.43.02"
#define CUDA_VERSION 13030

enum { MAX_GPUS = 16, MAX_PROCESSES = 128, MAX_CHECKPOINTS = 1024 };
enum { CHECKPOINT_RUNNING = 0, CHECKPOINT_LOCKED = 1, CHECKPOINT_CHECKPOINTED = 2, CHECKPOINT_FAILED = 3 };

/* Which faults are set; a field without its bit is as measured. */
enum fault {
    FAULT_TEMPERATURE = 1 << 0,
    FAULT_UTILIZATION = 1 << 1,
    FAULT_THROTTLE = 1 << 2,
    FAULT_SM_CLOCK = 1 << 3,
};

struct gpu_process {
    uint32_t pid;
    uint32_t reserved;
    uint64_t memory;
};

struct gpu_measured {
    uint32_t utilization; /* percent, over the last half second */
    uint32_t process_count;
    uint64_t memory_used; /* what the trials on it declared */
    uint64_t worked_ns;   /* since the daemon made this file */
    struct gpu_process processes[MAX_PROCESSES];
};

struct gpu_faults {
    uint32_t set; /* bits of enum fault */
    uint32_t temperature;
    uint32_t utilization;
    uint32_t sm_clock;
    uint64_t throttle; /* NVML's bits */
    uint64_t ecc_uncorrected;
    uint64_t ecc_corrected;
    uint64_t memory;   /* taken by a stranger */
    uint32_t memory_pid; /* the stranger, if it shall be listed */
    uint32_t xid;
    uint32_t xid_count; /* grows with each xid: an event each */
    uint32_t lost;      /* off the bus: every call answers GPU_IS_LOST */
    uint32_t remap_failed;
    uint32_t retired_pending;
};

struct gpu {
    char uuid[48];
    char product[64];
    uint64_t memory_total;
    uint32_t pci_bus;
    uint32_t reserved;
    struct gpu_measured measured;
    struct gpu_faults faults;
};

struct checkpoint {
    uint32_t pid; /* 0: free */
    uint32_t state;
    uint64_t start_time; /* of the process, so that a pid used again is another process */
};

struct state {
    char magic[8];
    uint32_t version;
    uint32_t size;
    uint32_t sequence;
    uint32_t gpu_count;
    uint64_t updated_ns; /* CLOCK_MONOTONIC of the daemon's last sample */
    char node[64];
    struct gpu gpus[MAX_GPUS];
    struct checkpoint checkpoints[MAX_CHECKPOINTS];
};

/* A mapping that follows the file: when the daemon has made a new one, the next `view_refresh` maps that. */
struct view {
    int fd;
    int writable;
    uint64_t inode;
    uint64_t device;
    struct state *state;
};

const char *state_path(void);
/* 0, or an errno: ENOENT without a file, EPROTO for a file of another layout. */
int view_refresh(struct view *view, const char *path, int writable);
void view_close(struct view *view);
void state_read_gpu(const struct state *state, unsigned index, struct gpu *out);
int state_write_begin(struct view *view);
void state_write_end(struct view *view);
/* Start time of a process in clock ticks since boot; 0 if there is none. */
uint64_t process_start_time(uint32_t pid);

#endif

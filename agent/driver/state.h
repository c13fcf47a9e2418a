/*
 * The shared state of the fake driver: one memory-mapped file that the daemon and both libraries use.
 *
 * Each part has its own writer, so that no writer can undo the work of another:
 *   measurements of a GPU      the daemon, in each sample
 *   faults of a GPU            `podium-fake-gpud set`
 *   faults of checkpoints      `podium-fake-gpud checkpoint`
 *   processes that use CUDA    libcuda.so.1, in the process itself; a caller of cuCheckpointProcess* writes the request
 *
 * A writer holds an OFD lock on the file, which the kernel releases when the writer dies. While it writes, `sequence`
 * is odd. A reader copies the data, and repeats the copy if `sequence` was odd or has changed. A writer that is killed
 * leaves `sequence` odd until the next write. Readers therefore give up after 50 ms and use what they have. Every field
 * is written as a whole, so a reader gets a mix of two samples at worst.
 */
#ifndef PODIUM_FAKE_DRIVER_STATE_H
#define PODIUM_FAKE_DRIVER_STATE_H

#include <stddef.h>
#include <stdint.h>

#define STATE_MAGIC "PODFAKE"
#define STATE_VERSION 3u
#define STATE_PATH_ENV "PODIUM_FAKE_DRIVER_STATE"
#define STATE_PATH_DEFAULT "/var/lib/podium-fake-driver/state"
#define DRIVER_VERSION "610.43.02"
#define CUDA_VERSION 13030

enum { MAX_GPUS = 16, MAX_PROCESSES = 128, MAX_CUDA_PROCESSES = 1024 };

/* CUprocessState of the CUDA driver API. */
enum {
    CU_PROCESS_STATE_RUNNING = 0,
    CU_PROCESS_STATE_LOCKED = 1,
    CU_PROCESS_STATE_CHECKPOINTED = 2,
    CU_PROCESS_STATE_FAILED = 3,
};

enum checkpoint_call { CALL_LOCK = 1, CALL_CHECKPOINT, CALL_RESTORE, CALL_UNLOCK, CALLS };

/* Which readings a fault replaces. A reading without its bit is the measured one. */
enum fault {
    FAULT_TEMPERATURE = 1 << 0,
    FAULT_UTILIZATION = 1 << 1,
    FAULT_THROTTLE = 1 << 2,
    FAULT_SM_CLOCK = 1 << 3,
};

struct gpu_process {
    uint32_t pid;
    uint32_t reserved;
    uint64_t memory; /* bytes */
};

struct gpu_measurements {
    uint32_t utilization; /* percent, over the last half second */
    uint32_t process_count;
    uint64_t memory_used; /* bytes that the containers on this GPU declare */
    uint64_t worked_ns;   /* CPU time since the daemon created this file */
    struct gpu_process processes[MAX_PROCESSES];
};

struct gpu_faults {
    uint32_t set; /* bits of enum fault */
    uint32_t temperature;
    uint32_t utilization;
    uint32_t sm_clock;
    uint64_t throttle; /* NVML's clocks event reasons */
    uint64_t ecc_uncorrected;
    uint64_t ecc_corrected;
    uint64_t memory;     /* bytes that an unrelated process holds */
    uint32_t memory_pid; /* PID under which NVML lists that process; 0: it is not listed */
    uint32_t xid;
    uint32_t xid_count; /* grows with each Xid, so that each one is an event */
    uint32_t lost;      /* 1: the GPU fell off the bus, every call returns GPU_IS_LOST */
    uint32_t remap_failed;
    uint32_t retired_pending;
};

struct gpu {
    char uuid[48];
    char product[64];
    uint64_t memory_total; /* bytes */
    uint32_t pci_bus;
    uint32_t reserved;
    struct gpu_measurements measurements;
    struct gpu_faults faults;
};

/* A process that has created a CUDA context. A thread of its own libcuda serves the requests, so a process that the
 * cgroup freezer has stopped does not answer, as with the real driver. */
struct cuda_process {
    uint64_t start_time; /* clock ticks since boot, to detect a reused PID; 0: this entry is free */
    uint64_t own_start;  /* start time in the time namespace of the process: CRIU restores a process into its own one */
    uint64_t created_ns; /* CLOCK_MONOTONIC */
    uint32_t pid;        /* in the daemon's PID namespace, assigned by the daemon; 0: not known yet */
    uint32_t own_pid;    /* in the PID namespace of the process */
    uint32_t state;      /* CUprocessState */
    uint32_t thread;     /* ID of the thread that serves the requests */
    uint32_t gpus;       /* bits: the GPUs on which the process has a context */
    uint32_t resident;   /* 1: its memory is on the GPUs */
    uint32_t migrated;   /* 1: CRIU restored the checkpointed process here, from another node or from an image */
    uint32_t requested;  /* number of the last request; a futex that the thread waits for */
    uint32_t completed;  /* number of the last request that was served; a futex that the caller waits for */
    uint32_t call;       /* enum checkpoint_call */
    uint32_t timeout_ms; /* of a lock; 0: no limit */
    int32_t code;        /* CUresult of the last request */
    uint8_t map[MAX_GPUS];       /* of a restore: the memory of GPU i goes to GPU map[i] */
    uint64_t bytes[MAX_GPUS];    /* allocated on each GPU */
    uint8_t uuids[MAX_GPUS][16]; /* of the GPUs that `gpus` and `bytes` count; those of the old node until a restore */
};

/* Faults of the cuCheckpointProcess* calls, and their speed. A set of calls has the bit 1 << call. */
struct checkpoint_faults {
    uint32_t pid;    /* the only process concerned; 0: all processes */
    uint32_t hang;   /* calls that do not return */
    uint32_t fail;   /* calls that fail and change nothing */
    uint32_t breaks; /* calls that put the process into the state FAILED */
    uint32_t busy;   /* 1: the work of the process never ends, so a lock times out */
    uint32_t lie;    /* 1: a checkpoint returns success but frees no memory */
    uint64_t latency_ms;
    uint64_t speed; /* bytes per second of each copy; 0: copies take no time */
};

struct state {
    char magic[8];
    uint32_t version;
    uint32_t size;
    uint32_t sequence;
    uint32_t gpu_count;
    uint64_t updated_ns;    /* CLOCK_MONOTONIC of the daemon's last sample */
    uint64_t pid_namespace; /* inode of the daemon's PID namespace */
    char node[64];
    struct gpu gpus[MAX_GPUS];
    struct checkpoint_faults checkpoint_faults;
    uint32_t cuda_used; /* entries of `cuda` that were ever used; the rest is free */
    struct cuda_process cuda[MAX_CUDA_PROCESSES];
};

/* A mapping of the file. `view_refresh` maps the new file after the daemon has replaced it. */
struct view {
    int fd; /* -1: the mapping is read-only, or the file is closed while the process is checkpointed */
    int writable;
    uint64_t inode;
    uint64_t device;
    struct state *state;
};

const char *state_path(void);
/* Returns 0 or an errno: ENOENT without a file, EPROTO for a file with another layout. */
int view_refresh(struct view *view, const char *path, int writable);
void view_close(struct view *view);
void state_read_gpu(const struct state *state, unsigned index, struct gpu *out);
/* Locks the file for writing. Returns 0 or an errno. */
int state_write_begin(struct view *view);
void state_write_end(struct view *view);
/* Returns the start time of a process in clock ticks since boot; 0 if there is no such process, or it is a zombie. */
uint64_t process_start_time(uint32_t pid);
uint64_t monotonic_ns(void);
/* Returns the inode of this process's PID namespace. */
uint64_t own_pid_namespace(void);
/* Returns whether the process of an entry is alive. In another PID namespace than the daemon's, every entry counts as
 * alive, because only the daemon can see the process. */
int cuda_process_is_alive(const struct state *state, const struct cuda_process *process);
/* Returns the entry of a process; NULL if the process has created no context. */
struct cuda_process *cuda_process_find(struct state *state, uint32_t pid, uint64_t start_time);
/* Returns whether a fault of checkpoints concerns a process. `bits` are the fault's calls, or its switch. */
int checkpoint_fault_applies(const struct state *state, const struct cuda_process *process, uint32_t bits);
/* Adds the memory and the processes that use CUDA on a GPU to its measurements. A dead process counts until the
 * daemon's next sample. A program in a container cannot see which processes live, and NVML and CUDA must agree on what
 * is free. */
void cuda_processes_count(const struct state *state, unsigned gpu, struct gpu_measurements *measurements);
/* Returns the free bytes of a GPU, with all processes counted. */
uint64_t gpu_free_bytes(const struct state *state, unsigned gpu);

#endif

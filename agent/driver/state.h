/*
 * The shared state of the fake driver: one mmap'd file that the daemon (gpud) writes and both libraries read.
 *
 * Who writes what, so that no writer can undo another:
 *   measured part of a GPU   the daemon, each sample
 *   faults of a GPU          `podium-fake-gpud set`
 *   faults of checkpoints    `podium-fake-gpud checkpoint`
 *   processes that hold CUDA libcuda.so.1: in the process itself (memory, moves) and in whoever asks it to move (requests)
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
#define STATE_VERSION 3u
#define STATE_PATH_ENV "PODIUM_FAKE_DRIVER_STATE"
#define STATE_PATH_DEFAULT "/var/lib/podium-fake-driver/state"
#define DRIVER_VERSION "610.43.02"
#define CUDA_VERSION 13030

enum { MAX_GPUS = 16, MAX_PROCESSES = 128, MAX_CUDA_PROCESSES = 1024 };
enum { CHECKPOINT_RUNNING = 0, CHECKPOINT_LOCKED = 1, CHECKPOINT_CHECKPOINTED = 2, CHECKPOINT_FAILED = 3 };
enum checkpoint_call { CALL_LOCK = 1, CALL_CHECKPOINT, CALL_RESTORE, CALL_UNLOCK, CALLS };

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

/* A process that has made a CUDA context. A thread of its own libcuda carries out what `asked` says: a process that the
 * cgroup freezer has stopped answers nobody, as with the real driver. */
struct cuda_process {
    uint64_t start_time; /* 0: free; so that a pid used again is another process */
    uint64_t own_start;  /* as it sees itself: CRIU gives what it brings back a clock of its own (a time namespace) */
    uint64_t made_ns;    /* CLOCK_MONOTONIC */
    uint32_t pid;        /* as the daemon sees it, who finds that out; 0: not yet */
    uint32_t own_pid;    /* as it sees itself */
    uint32_t state;
    uint32_t thread;     /* that carries out */
    uint32_t gpus;       /* bits: where it has a context */
    uint32_t resident;   /* 1: its bytes lie on the GPUs */
    uint32_t moved;      /* 1: it came checkpointed from another node, or back from one (CRIU) */
    uint32_t asked;      /* serial number of the last request: a futex of the thread */
    uint32_t answered;   /* of the last one carried out: a futex of whoever asked */
    uint32_t call;       /* enum checkpoint_call */
    uint32_t timeout_ms; /* of a lock; 0: for ever */
    int32_t code;        /* the last answer, a CUresult */
    uint8_t map[MAX_GPUS]; /* of a restore: what lay on GPU i goes to map[i] */
    uint64_t bytes[MAX_GPUS];
    uint8_t uuids[MAX_GPUS][16]; /* of the GPUs that `gpus` and `bytes` count: of its old node until it is restored */
};

/* What goes wrong with moves, and how long they take. A set of calls has the bit 1 << call. */
struct checkpoint_faults {
    uint32_t pid;    /* the only one concerned; 0: all */
    uint32_t hang;   /* calls without an answer */
    uint32_t fail;   /* calls that are refused and change nothing */
    uint32_t breaks; /* calls that leave the process FAILED */
    uint32_t busy;   /* its work never ends: a lock waits until its time is over */
    uint32_t lie;    /* a checkpoint that says success and frees nothing */
    uint64_t latency_ms;
    uint64_t speed; /* bytes a second, out and in; 0: at once */
};

struct state {
    char magic[8];
    uint32_t version;
    uint32_t size;
    uint32_t sequence;
    uint32_t gpu_count;
    uint64_t updated_ns; /* CLOCK_MONOTONIC of the daemon's last sample */
    uint64_t pid_namespace; /* of the daemon: all pids here are as it sees them */
    char node[64];
    struct gpu gpus[MAX_GPUS];
    struct checkpoint_faults checkpoint_faults;
    uint32_t cuda_used; /* so many entries of `cuda` were ever used: nobody needs to look at the others */
    struct cuda_process cuda[MAX_CUDA_PROCESSES];
};

/* A mapping that follows the file: when the daemon has made a new one, the next `view_refresh` maps that. */
struct view {
    int fd; /* -1: one that only reads, or lets go of the file for now */
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
/* Start time of a process in clock ticks since boot; 0 if there is none, or none that lives. */
uint64_t process_start_time(uint32_t pid);
uint64_t monotonic_ns(void);
/* Of the PID namespace that this process is in: its inode. */
uint64_t own_pid_namespace(void);
/* Whether the process of an entry lives; where /proc shows other pids than the daemon's, the daemon is believed. */
int cuda_process_lives(const struct state *state, const struct cuda_process *process);
/* The entry of a process; NULL if it has made no context. */
struct cuda_process *cuda_process_find(struct state *state, uint32_t pid, uint64_t start_time);
/* Adds to what was measured of a GPU the memory and the processes that hold CUDA there. One that has died counts until the
 * daemon's next sample: a program in a container cannot see who lives, and what NVML calls free it must be able to have. */
void cuda_processes_count(const struct state *state, unsigned gpu, struct gpu_measured *measured);
/* Bytes that are free on a GPU, strangers and all. */
uint64_t gpu_free(const struct state *state, unsigned gpu);

#endif

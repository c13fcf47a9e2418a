/*
 * Sample which processes work on which GPU. See sampler.h.
 *
 * A process belongs to the GPUs whose device nodes its container has. Where there are none, it belongs to those whose
 * UUID its NVIDIA_VISIBLE_DEVICES names. Its work is the CPU time of the process. One clock_gettime on its CPU clock
 * covers all threads in nanoseconds, and the clock stops while the process is frozen.
 *
 * A sample every 20 ms must be cheap:
 *   - the last PID in /proc/loadavg shows whether there are new processes;
 *   - /proc is listed only every 250 ms;
 *   - the environment of a process without a GPU is read again in each sample only while the process may still exec: a
 *     young process, or runc.
 */
#define _GNU_SOURCE
#include "sampler.h"

#include "device_nodes.h"
#include "process_table.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define LIST_EVERY_NS (250 * MS)
#define RECHECK_NS (1000 * MS)
#define YOUNG_NS (500 * MS)     /* up to this age the environment is read in every sample */
#define SETTLING_NS (5000 * MS) /* up to this age it is read every SETTLING_CHECK_NS */
#define SETTLING_CHECK_NS (100 * MS)
#define LINE_NS (1000 * MS) /* a longer interval continues in the next line */
#define UTILIZATION_NS (500 * MS)
#define GATE_NAME "podium-gate"

enum { PID_LIMIT = 4194304, ENVIRON_MAX = 65536, WINDOW = 64, NOT_FOUND = -1, NEW_PIDS_MAX = 512, FORKING_PIDS = 8 };

struct process {
    uint32_t pid;
    uint32_t listed;  /* number of the last listing of /proc that had the process */
    uint32_t visible; /* bits: the GPUs that its container may use */
    uint32_t gpus;    /* bits: the GPUs on which it works, those or the ones of its CUDA entry; 0: none of this node */
    int ignored;      /* 1: podium-gate, which uses no GPU */
    int uses_cuda;    /* 1: it has created a context */
    uint64_t start_time, first_seen, next_check;
    uint64_t memory; /* bytes that the container declares */
    char container[96];
    char name[32];
    uint64_t clock_ns, read_at; /* the last reading */
    /* the open interval: its work began in (start, start_latest] and last continued in (end_earliest, end] */
    int working;
    uint64_t start, start_latest, end_earliest, end, worked_ns;
};

struct window {
    uint64_t at[WINDOW], worked[WINDOW];
    unsigned next;
};

struct sampler {
    FILE *log;
    unsigned gpu_count;
    char uuids[MAX_GPUS][48];
    uint64_t total_ns[MAX_GPUS];
    struct window windows[MAX_GPUS];
    struct process *processes;
    uint32_t count, capacity;
    int32_t *index_of; /* by PID: index in `processes`, plus 1; 0: none */
    uint32_t listing, last_pid;
    uint64_t listed_at, sampled_at;
    int loadavg;
    uint64_t pid_namespace;
    DIR *proc;
    char environ[ENVIRON_MAX];
};

static int64_t cpu_clock_ns(uint32_t pid) {
    struct timespec t;
    clockid_t clock = (clockid_t)((~(uint32_t)pid << 3) | 2u); /* the kernel's ID of the CPU clock of a process */
    if (clock_gettime(clock, &t) != 0) return NOT_FOUND;
    return (int64_t)t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* ---- the log ---- */
static void write_interval(struct sampler *sampler, struct process *process) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    double offset = (double)wall.tv_sec + (double)wall.tv_nsec / 1e9 - (double)monotonic_ns() / 1e9;
    for (unsigned gpu = 0; gpu < sampler->gpu_count; gpu++) {
        if ((process->gpus & (1u << gpu)) == 0) continue;
        fprintf(sampler->log, "%.6f %.6f %s %u %s %llu %.6f %.6f %.3f %.3f %s\n", (double)process->start / 1e9,
                (double)process->end / 1e9, sampler->uuids[gpu], process->pid, process->container,
                (unsigned long long)process->worked_ns, (double)process->start_latest / 1e9,
                (double)process->end_earliest / 1e9, (double)process->start / 1e9 + offset,
                (double)process->end / 1e9 + offset, process->name);
    }
    process->working = 0;
}

static void note_work(struct sampler *sampler, struct process *process, uint64_t from, uint64_t to, uint64_t worked) {
    if (worked == 0) {
        if (process->working) write_interval(sampler, process);
        return;
    }
    if (!process->working) {
        process->working = 1;
        process->start = from;
        process->start_latest = to;
        process->worked_ns = 0;
        char name[32]; /* the process may have changed its name since the last interval */
        ssize_t n = read_proc(process->pid, "comm", name, sizeof name);
        if (n > 1) {
            name[n - 1] = '\0';
            memcpy(process->name, name, sizeof name);
        }
    }
    process->end_earliest = from;
    process->end = to;
    process->worked_ns += worked;
    if (process->end - process->start >= LINE_NS) write_interval(sampler, process);
}

/* ---- GPUs and container of a process ---- */
static const char *variable(const char *environ, size_t length, const char *name) {
    size_t name_length = strlen(name);
    for (const char *at = environ; at < environ + length; at += strlen(at) + 1)
        if (strncmp(at, name, name_length) == 0 && at[name_length] == '=') return at + name_length + 1;
    return NULL;
}

static uint32_t gpus_in_list(const struct sampler *sampler, const char *list) {
    uint32_t gpus = 0;
    for (unsigned gpu = 0; list != NULL && gpu < sampler->gpu_count; gpu++)
        if (strstr(list, sampler->uuids[gpu]) != NULL) gpus |= 1u << gpu;
    return gpus;
}

/* Where runc cannot protect its program otherwise, it runs from a copy in memory, which has the second name. */
static int is_runc(const char *name) { return strncmp(name, "runc", 4) == 0 || strncmp(name, "memfd:runc", 10) == 0; }

/* Device nodes are read in containers only: an agent in the host's PID namespace sees the nodes of all GPUs, but works on
 * none. The same holds for runc, which enters the container before it execs the program. */
static int32_t gpus_by_nodes(const struct sampler *sampler, uint32_t pid, const char *name) {
    char path[48];
    struct stat namespace;
    snprintf(path, sizeof path, "/proc/%u/ns/pid", pid);
    if (is_runc(name) || stat(path, &namespace) != 0 || namespace.st_ino == sampler->pid_namespace)
        return NO_DEVICE_NODES;
    snprintf(path, sizeof path, "/proc/%u/root", pid);
    return device_nodes_gpus(path, sampler->gpu_count);
}

/* Finds the container ID: the last run of 64 hex digits in one of the cgroup paths, else the longest path. */
static void find_container(uint32_t pid, char out[96]) {
    char text[4096];
    size_t longest = 0;
    strcpy(out, "-");
    if (read_proc(pid, "cgroup", text, sizeof text) <= 0) return;
    for (char *end, *line = text; *line != '\0'; line = end) {
        end = line + strcspn(line, "\n");
        if (*end != '\0') *end++ = '\0';
        const char *path = strchr(line, ':');
        path = path == NULL ? NULL : strchr(path + 1, ':');
        if (path == NULL) continue;
        const char *id = NULL;
        for (const char *at = ++path; *at != '\0';) {
            size_t run = strspn(at, "0123456789abcdef");
            if (run == 64) id = at;
            at += run > 0 ? run : 1;
        }
        if (id != NULL) {
            snprintf(out, 96, "%.64s", id);
            return;
        }
        if (strlen(path) > longest) {
            longest = strlen(path);
            snprintf(out, 96, "%.95s", path);
            for (char *c = out; *c != '\0'; c++)
                if (isspace((unsigned char)*c)) *c = '_';
        }
    }
}

static void classify(struct sampler *sampler, struct process *process, const struct state *state, uint64_t now) {
    char name[32];
    ssize_t n = read_proc(process->pid, "environ", sampler->environ, sizeof sampler->environ);
    /* The name is read after the environment. Otherwise an exec in between gives the new environment the old name. */
    ssize_t length = read_proc(process->pid, "comm", name, sizeof name);
    if (length > 0 && name[length - 1] == '\n') name[length - 1] = '\0';
    if (length > 0) memcpy(process->name, name, sizeof name);
    int32_t nodes = n > 0 ? gpus_by_nodes(sampler, process->pid, process->name) : 0;
    process->visible = nodes != NO_DEVICE_NODES
                           ? (uint32_t)nodes
                           : gpus_in_list(sampler, variable(sampler->environ, (size_t)n, "NVIDIA_VISIBLE_DEVICES"));
    uint32_t gpus = process_table_gpus(state, process->pid, process->visible);
    uint64_t start_time = gpus != 0 ? process_start_time(process->pid) : 0;
    if (gpus != process->gpus || start_time != process->start_time) {
        if (process->working) write_interval(sampler, process);
        const char *memory = gpus != 0 ? variable(sampler->environ, (size_t)n, "PODIUM_GPU_MEMORY_BYTES") : NULL;
        int64_t clock = gpus != 0 ? cpu_clock_ns(process->pid) : NOT_FOUND;
        /* All work of a new process is of this sample. Earlier work of another process was not on this GPU. */
        int is_new = process->first_seen == now;
        process->gpus = gpus;
        process->start_time = start_time;
        process->memory = memory != NULL ? strtoull(memory, NULL, 10) : 0;
        process->clock_ns = is_new || clock < 0 ? 0 : (uint64_t)clock;
        process->read_at = is_new ? sampler->sampled_at : now;
    }
    char container[sizeof process->container] = "";
    if (gpus != 0) find_container(process->pid, container);
    if (strcmp(container, process->container) != 0) { /* earlier work belongs to the previous container */
        if (process->working) write_interval(sampler, process);
        memcpy(process->container, container, sizeof container);
    }
    process->ignored = strcmp(process->name, GATE_NAME) == 0;
    uint64_t age = now - process->first_seen;
    int may_exec = process->gpus == 0 && (age < YOUNG_NS || is_runc(process->name));
    if (may_exec) process->next_check = now;
    else if (age < SETTLING_NS) process->next_check = now + SETTLING_CHECK_NS;
    else process->next_check = now + RECHECK_NS + (process->pid % 64) * 16 * MS; /* spread over samples */
}

/* ---- the list of processes ---- */
static void remove_process(struct sampler *sampler, uint32_t index) {
    struct process *process = &sampler->processes[index];
    if (process->working) write_interval(sampler, process);
    sampler->index_of[process->pid] = 0;
    sampler->count--;
    if (index == sampler->count) return;
    *process = sampler->processes[sampler->count];
    sampler->index_of[process->pid] = (int32_t)index + 1;
}

static void add_process(struct sampler *sampler, uint32_t pid, uint64_t now) {
    if (pid == 0 || pid > PID_LIMIT) return;
    if (sampler->index_of[pid] != 0) {
        sampler->processes[sampler->index_of[pid] - 1].listed = sampler->listing;
        return;
    }
    if (sampler->count == sampler->capacity) {
        uint32_t capacity = sampler->capacity == 0 ? 512 : sampler->capacity * 2;
        struct process *more = realloc(sampler->processes, capacity * sizeof *more);
        if (more == NULL) return; /* the next listing tries again */
        sampler->processes = more;
        sampler->capacity = capacity;
    }
    struct process *process = &sampler->processes[sampler->count++];
    *process = (struct process){.pid = pid, .listed = sampler->listing, .first_seen = now, .next_check = now};
    sampler->index_of[pid] = (int32_t)sampler->count;
}

/* The kernel assigns PIDs in ascending order, so new processes have PIDs up to the last one. Some lower PIDs may have
 * been assigned but not visible yet. Returns 0 if the new PIDs are unknown: there are too many, or the numbers wrapped
 * around. A PID without a process CPU clock is a thread. */
static int add_new_processes(struct sampler *sampler, uint64_t now) {
    char text[128];
    ssize_t n = pread(sampler->loadavg, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    const char *last = strrchr(text, ' ');
    uint32_t before = sampler->last_pid, last_pid = last != NULL ? (uint32_t)strtoul(last, NULL, 10) : 0;
    sampler->last_pid = last_pid;
    if (before == 0 || last_pid < before || last_pid - before > NEW_PIDS_MAX) return 0;
    for (uint32_t pid = before > FORKING_PIDS ? before - FORKING_PIDS : 1; pid <= last_pid; pid++)
        if (pid <= PID_LIMIT && sampler->index_of[pid] == 0 && cpu_clock_ns(pid) >= 0) add_process(sampler, pid, now);
    return 1;
}

static void list_processes(struct sampler *sampler, uint64_t now) {
    if (add_new_processes(sampler, now) && now - sampler->listed_at < LIST_EVERY_NS) return;
    sampler->listed_at = now;
    sampler->listing++;
    rewinddir(sampler->proc);
    for (const struct dirent *entry; (entry = readdir(sampler->proc)) != NULL;)
        if (isdigit((unsigned char)entry->d_name[0]))
            add_process(sampler, (uint32_t)strtoul(entry->d_name, NULL, 10), now);
    for (uint32_t index = sampler->count; index-- > 0;)
        if (sampler->processes[index].listed != sampler->listing) remove_process(sampler, index);
}

/* ---- measurements ---- */
/* The declared memory belongs to a container, so it is counted with the first live process of the container. From the
 * first CUDA context in the container on, the allocated memory counts instead. This remains so after that process has
 * died: its zombie or a shell must not get the declared memory counted again. A restore would then fail although NVML
 * had just reported the memory as free. */
static void count_memory(const struct sampler *sampler, struct process *process,
                         struct gpu_measurements measurements[MAX_GPUS]) {
    uint64_t memory = process->memory;
    for (uint32_t index = 0; index < sampler->count; index++) {
        const struct process *other = &sampler->processes[index];
        if (other->gpus == 0 || other->ignored || strcmp(other->container, process->container) != 0) continue;
        if (other->uses_cuda) process->memory = 0;
        if (other->uses_cuda || other < process) memory = 0;
    }
    for (unsigned gpu = 0; gpu < sampler->gpu_count; gpu++) {
        if ((process->gpus & (1u << gpu)) == 0) continue;
        struct gpu_measurements *on = &measurements[gpu];
        on->memory_used += memory;
        if (on->process_count < MAX_PROCESSES)
            on->processes[on->process_count++] = (struct gpu_process){.pid = process->pid, .memory = memory};
    }
}

static void count_utilization(struct sampler *sampler, unsigned gpu, uint64_t now,
                              struct gpu_measurements *measurements) {
    struct window *window = &sampler->windows[gpu];
    window->at[window->next % WINDOW] = now;
    window->worked[window->next % WINDOW] = sampler->total_ns[gpu];
    uint64_t since = now, worked = 0;
    for (unsigned back = 1; back < WINDOW && back <= window->next; back++) {
        unsigned at = (window->next - back) % WINDOW;
        if (now - window->at[at] > UTILIZATION_NS) break;
        since = window->at[at];
        worked = sampler->total_ns[gpu] - window->worked[at];
    }
    window->next++;
    uint64_t percent = now > since ? (worked * 100 + (now - since) / 2) / (now - since) : 0;
    measurements->utilization = percent < 100 ? (uint32_t)percent : 100;
    measurements->worked_ns = sampler->total_ns[gpu];
}

void sampler_sample(struct sampler *sampler, struct state *state, struct gpu_measurements measurements[MAX_GPUS]) {
    uint64_t now = monotonic_ns();
    memset(measurements, 0, MAX_GPUS * sizeof *measurements);
    list_processes(sampler, now);
    int unassigned = process_table_has_unassigned_pid(state);
    for (uint32_t index = sampler->count; index-- > 0;) {
        struct process *process = &sampler->processes[index];
        if (unassigned) process_table_assign_pid(state, process->pid, process_start_time(process->pid));
        if (process_table_gpus(state, process->pid, process->visible) != process->gpus) process->next_check = now;
        if (now >= process->next_check) classify(sampler, process, state, now);
        if (process->gpus == 0 || process->ignored) continue;
        int64_t clock = cpu_clock_ns(process->pid);
        if (clock < 0) {
            remove_process(sampler, index);
            continue;
        }
        uint64_t at = monotonic_ns();
        uint64_t worked = (uint64_t)clock > process->clock_ns ? (uint64_t)clock - process->clock_ns : 0;
        note_work(sampler, process, process->read_at, at, worked);
        for (unsigned gpu = 0; gpu < sampler->gpu_count; gpu++)
            if (process->gpus & (1u << gpu)) sampler->total_ns[gpu] += worked;
        process->clock_ns = (uint64_t)clock;
        process->read_at = at;
        process_table_assign_pid(state, process->pid, process->start_time);
        process->uses_cuda = cuda_process_find(state, process->pid, process->start_time) != NULL;
    }
    for (uint32_t index = 0; index < sampler->count; index++) {
        struct process *process = &sampler->processes[index];
        if (process->gpus != 0 && !process->ignored) count_memory(sampler, process, measurements);
    }
    for (unsigned gpu = 0; gpu < sampler->gpu_count; gpu++) count_utilization(sampler, gpu, now, &measurements[gpu]);
    process_table_remove_dead(state, now);
    sampler->sampled_at = now;
    fflush(sampler->log);
}

void sampler_finish(struct sampler *sampler) {
    for (uint32_t index = 0; index < sampler->count; index++)
        if (sampler->processes[index].working) write_interval(sampler, &sampler->processes[index]);
    fflush(sampler->log);
}

struct sampler *sampler_new(const struct state *state, FILE *log) {
    struct sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler == NULL) return NULL;
    sampler->log = log;
    sampler->gpu_count = state->gpu_count;
    sampler->pid_namespace = own_pid_namespace();
    sampler->sampled_at = monotonic_ns();
    for (unsigned gpu = 0; gpu < state->gpu_count; gpu++) memcpy(sampler->uuids[gpu], state->gpus[gpu].uuid, 48);
    sampler->index_of = calloc(PID_LIMIT + 1, sizeof *sampler->index_of); /* 16 MiB, most of it never touched */
    sampler->loadavg = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    sampler->proc = opendir("/proc");
    if (sampler->index_of != NULL && sampler->loadavg >= 0 && sampler->proc != NULL) return sampler;
    sampler_free(sampler);
    return NULL;
}

void sampler_free(struct sampler *sampler) {
    if (sampler->loadavg >= 0) close(sampler->loadavg);
    if (sampler->proc != NULL) closedir(sampler->proc);
    free(sampler->index_of);
    free(sampler->processes);
    free(sampler);
}

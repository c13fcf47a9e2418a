/*
 * Who works on which GPU. See sampler.h.
 *
 * A process belongs to a GPU when its environment names the GPU's UUID in NVIDIA_VISIBLE_DEVICES. Its work is the time its
 * CPU clock advanced: clock_gettime on the process's clock is one system call, counts all threads in nanoseconds, and
 * stands still while the process is frozen.
 *
 * The scan must be cheap enough for every 20 ms: new processes are found by the last pid in /proc/loadavg, /proc is listed
 * only every 250 ms, and the environment of a process that is not ours is read again only while it may still exec (young, or runc).
 */
#define _GNU_SOURCE
#include "sampler.h"

#include "entries.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define LIST_EVERY_NS (250 * MS)
#define RECHECK_NS (1000 * MS)
#define YOUNG_NS (500 * MS)       /* looked at in every sample */
#define ADOLESCENT_NS (5000 * MS) /* then every 100 ms up to this age */
#define ADOLESCENT_CHECK_NS (100 * MS)
#define LINE_NS (1000 * MS) /* an interval is written at the latest after this, and goes on in the next line */
#define UTILIZATION_NS (500 * MS)
#define GATE_NAME "podium-gate"

enum { PID_LIMIT = 4194304, ENVIRON_MAX = 65536, WINDOW = 64, NOT_FOUND = -1, NEW_PIDS_MAX = 512, ON_THEIR_WAY = 8 };

struct process {
    uint32_t pid;
    uint32_t listed; /* the listing in which it was last seen */
    uint32_t named;  /* bits: the GPUs that its environment names */
    uint32_t gpus;   /* where it works: on those, or where the driver has put it; 0: not ours */
    int ignored;     /* the gate: waits, uses no GPU */
    int holds_cuda;  /* it has made a context */
    uint64_t start_time, first_seen, next_check;
    uint64_t memory;
    char container[96];
    char name[32];
    uint64_t clock_ns, read_at; /* the last reading */
    /* the open interval: it began in (start, start_latest] and its last work was in (end_earliest, end] */
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
    uint32_t count, room;
    int32_t *place_of; /* by pid: place in `processes`, plus 1; 0: none */
    uint32_t listing, last_pid;
    uint64_t listed_at, sampled_at;
    int loadavg;
    DIR *proc;
    char environ[ENVIRON_MAX];
};

static int64_t cpu_clock_ns(uint32_t pid) {
    struct timespec t;
    clockid_t clock = (clockid_t)((~(uint32_t)pid << 3) | 2u); /* the kernel's name for a process's run time in ns */
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
        char name[32]; /* it may have renamed itself; read only when it begins to work */
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

/* ---- whose process it is ---- */
static const char *variable(const char *environ, size_t length, const char *name) {
    size_t name_length = strlen(name);
    for (const char *at = environ; at < environ + length; at += strlen(at) + 1)
        if (strncmp(at, name, name_length) == 0 && at[name_length] == '=') return at + name_length + 1;
    return NULL;
}

static uint32_t gpus_named(const struct sampler *sampler, const char *list) {
    uint32_t gpus = 0;
    for (unsigned gpu = 0; list != NULL && gpu < sampler->gpu_count; gpu++)
        if (strstr(list, sampler->uuids[gpu]) != NULL) gpus |= 1u << gpu;
    return gpus;
}

/* The container's id: the last run of 64 hex digits in any of its cgroup paths, else the longest path. */
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
    /* after its environment: were it read before, one that execs meanwhile would have its new one under its old name */
    ssize_t length = read_proc(process->pid, "comm", name, sizeof name);
    if (length > 0 && name[length - 1] == '\n') name[length - 1] = '\0';
    if (length > 0) memcpy(process->name, name, sizeof name);
    process->named = n > 0 ? gpus_named(sampler, variable(sampler->environ, (size_t)n, "NVIDIA_VISIBLE_DEVICES")) : 0;
    uint32_t gpus = entries_gpus(state, process->pid, process->named);
    uint64_t start_time = gpus != 0 ? process_start_time(process->pid) : 0;
    if (gpus != process->gpus || start_time != process->start_time) {
        if (process->working) write_interval(sampler, process);
        const char *memory = gpus != 0 ? variable(sampler->environ, (size_t)n, "PODIUM_GPU_MEMORY_BYTES") : NULL;
        int64_t clock = gpus != 0 ? cpu_clock_ns(process->pid) : NOT_FOUND;
        /* born since the last sample: all it has done was done in this one. Else its past was not the GPU's. */
        int newborn = process->first_seen == now;
        process->gpus = gpus;
        process->start_time = start_time;
        process->memory = memory != NULL ? strtoull(memory, NULL, 10) : 0;
        process->clock_ns = newborn || clock < 0 ? 0 : (uint64_t)clock;
        process->read_at = newborn ? sampler->sampled_at : now;
    }
    char container[sizeof process->container] = "";
    if (gpus != 0) find_container(process->pid, container);
    if (strcmp(container, process->container) != 0) { /* it was moved: what it did before belongs to the other one */
        if (process->working) write_interval(sampler, process);
        memcpy(process->container, container, sizeof container);
    }
    process->ignored = strcmp(process->name, GATE_NAME) == 0;
    uint64_t age = now - process->first_seen;
    int may_exec = process->gpus == 0 && (age < YOUNG_NS || strncmp(process->name, "runc", 4) == 0);
    if (may_exec) process->next_check = now;
    else if (age < ADOLESCENT_NS) process->next_check = now + ADOLESCENT_CHECK_NS;
    else process->next_check = now + RECHECK_NS + (process->pid % 64) * 16 * MS; /* spread, so that no sample is long */
}

/* ---- which processes there are ---- */
static void forget(struct sampler *sampler, uint32_t place) {
    struct process *process = &sampler->processes[place];
    if (process->working) write_interval(sampler, process);
    sampler->place_of[process->pid] = 0;
    sampler->count--;
    if (place == sampler->count) return;
    *process = sampler->processes[sampler->count];
    sampler->place_of[process->pid] = (int32_t)place + 1;
}

static void meet(struct sampler *sampler, uint32_t pid, uint64_t now) {
    if (pid == 0 || pid > PID_LIMIT) return;
    if (sampler->place_of[pid] != 0) {
        sampler->processes[sampler->place_of[pid] - 1].listed = sampler->listing;
        return;
    }
    if (sampler->count == sampler->room) {
        uint32_t room = sampler->room == 0 ? 512 : sampler->room * 2;
        struct process *more = realloc(sampler->processes, room * sizeof *more);
        if (more == NULL) return; /* seen again in the next listing */
        sampler->processes = more;
        sampler->room = room;
    }
    struct process *process = &sampler->processes[sampler->count++];
    *process = (struct process){.pid = pid, .listed = sampler->listing, .first_seen = now, .next_check = now};
    sampler->place_of[pid] = (int32_t)sampler->count;
}

/* The kernel gives pids in turn, so the new processes are those up to the last pid; a few before it may have been on their
 * way the last time. Answers 0 if that cannot be told (too many, or the numbers began anew). A thread has no process's clock. */
static int meet_new(struct sampler *sampler, uint64_t now) {
    char text[128];
    ssize_t n = pread(sampler->loadavg, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    const char *last = strrchr(text, ' ');
    uint32_t before = sampler->last_pid, last_pid = last != NULL ? (uint32_t)strtoul(last, NULL, 10) : 0;
    sampler->last_pid = last_pid;
    if (before == 0 || last_pid < before || last_pid - before > NEW_PIDS_MAX) return 0;
    for (uint32_t pid = before > ON_THEIR_WAY ? before - ON_THEIR_WAY : 1; pid <= last_pid; pid++)
        if (pid <= PID_LIMIT && sampler->place_of[pid] == 0 && cpu_clock_ns(pid) >= 0) meet(sampler, pid, now);
    return 1;
}

static void list_processes(struct sampler *sampler, uint64_t now) {
    if (meet_new(sampler, now) && now - sampler->listed_at < LIST_EVERY_NS) return;
    sampler->listed_at = now;
    sampler->listing++;
    rewinddir(sampler->proc);
    for (const struct dirent *entry; (entry = readdir(sampler->proc)) != NULL;)
        if (isdigit((unsigned char)entry->d_name[0])) meet(sampler, (uint32_t)strtoul(entry->d_name, NULL, 10), now);
    for (uint32_t place = sampler->count; place-- > 0;)
        if (sampler->processes[place].listed != sampler->listing) forget(sampler, place);
}

/* ---- what they did ---- */
/* Memory is a container's, not a process's: what it declares is counted with the first process of each container that
 * lives. Once a process has made a CUDA context there the driver knows better: from then on what is allocated counts. For
 * good: when that process has died, what it held is free, and must not be taken again by those that it leaves (its own
 * zombie, a shell), or a restore would be refused the memory that NVML had just said was free. */
static void count_memory(const struct sampler *sampler, struct process *process, struct gpu_measured measured[MAX_GPUS]) {
    uint64_t memory = process->memory;
    for (uint32_t place = 0; place < sampler->count; place++) {
        const struct process *other = &sampler->processes[place];
        if (other->gpus == 0 || other->ignored || strcmp(other->container, process->container) != 0) continue;
        if (other->holds_cuda) process->memory = 0;
        if (other->holds_cuda || other < process) memory = 0;
    }
    for (unsigned gpu = 0; gpu < sampler->gpu_count; gpu++) {
        if ((process->gpus & (1u << gpu)) == 0) continue;
        struct gpu_measured *on = &measured[gpu];
        on->memory_used += memory;
        if (on->process_count < MAX_PROCESSES)
            on->processes[on->process_count++] = (struct gpu_process){.pid = process->pid, .memory = memory};
    }
}

static void count_utilization(struct sampler *sampler, unsigned gpu, uint64_t now, struct gpu_measured *measured) {
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
    measured->utilization = percent < 100 ? (uint32_t)percent : 100;
    measured->worked_ns = sampler->total_ns[gpu];
}

void sampler_sample(struct sampler *sampler, struct state *state, struct gpu_measured measured[MAX_GPUS]) {
    uint64_t now = monotonic_ns();
    memset(measured, 0, MAX_GPUS * sizeof *measured);
    list_processes(sampler, now);
    int unnamed = entries_any_unnamed(state);
    for (uint32_t place = sampler->count; place-- > 0;) {
        struct process *process = &sampler->processes[place];
        if (unnamed) entries_name(state, process->pid, process_start_time(process->pid));
        if (entries_gpus(state, process->pid, process->named) != process->gpus) process->next_check = now;
        if (now >= process->next_check) classify(sampler, process, state, now);
        if (process->gpus == 0 || process->ignored) continue;
        int64_t clock = cpu_clock_ns(process->pid);
        if (clock < 0) {
            forget(sampler, place);
            continue;
        }
        uint64_t at = monotonic_ns();
        uint64_t worked = (uint64_t)clock > process->clock_ns ? (uint64_t)clock - process->clock_ns : 0;
        note_work(sampler, process, process->read_at, at, worked);
        for (unsigned gpu = 0; gpu < sampler->gpu_count; gpu++)
            if (process->gpus & (1u << gpu)) sampler->total_ns[gpu] += worked;
        process->clock_ns = (uint64_t)clock;
        process->read_at = at;
        entries_name(state, process->pid, process->start_time);
        process->holds_cuda = cuda_process_find(state, process->pid, process->start_time) != NULL;
    }
    for (uint32_t place = 0; place < sampler->count; place++) {
        struct process *process = &sampler->processes[place];
        if (process->gpus != 0 && !process->ignored) count_memory(sampler, process, measured);
    }
    for (unsigned gpu = 0; gpu < sampler->gpu_count; gpu++) count_utilization(sampler, gpu, now, &measured[gpu]);
    entries_clear(state, now);
    sampler->sampled_at = now;
    fflush(sampler->log);
}

void sampler_finish(struct sampler *sampler) {
    for (uint32_t place = 0; place < sampler->count; place++)
        if (sampler->processes[place].working) write_interval(sampler, &sampler->processes[place]);
    fflush(sampler->log);
}

struct sampler *sampler_new(const struct state *state, FILE *log) {
    struct sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler == NULL) return NULL;
    sampler->log = log;
    sampler->gpu_count = state->gpu_count;
    sampler->sampled_at = monotonic_ns();
    for (unsigned gpu = 0; gpu < state->gpu_count; gpu++) memcpy(sampler->uuids[gpu], state->gpus[gpu].uuid, 48);
    sampler->place_of = calloc(PID_LIMIT + 1, sizeof *sampler->place_of); /* 16 MiB of which only touched pages exist */
    sampler->loadavg = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    sampler->proc = opendir("/proc");
    if (sampler->place_of != NULL && sampler->loadavg >= 0 && sampler->proc != NULL) return sampler;
    sampler_free(sampler);
    return NULL;
}

void sampler_free(struct sampler *sampler) {
    if (sampler->loadavg >= 0) close(sampler->loadavg);
    if (sampler->proc != NULL) closedir(sampler->proc);
    free(sampler->place_of);
    free(sampler->processes);
    free(sampler);
}

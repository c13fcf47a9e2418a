/*
 * podium-fake-gpud: the daemon of the fake driver, one on each node.
 *
 * It creates the node's GPUs, updates the shared state, and records in work.log which process worked on which GPU when.
 * `podium-fake-gpud set` injects faults of a GPU. The daemon runs as root in the host's PID namespace, because it reads
 * /proc/PID/environ of other containers. See README.md.
 */
#define _GNU_SOURCE
#include "faults.h"
#include "sampler.h"
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DIR_DEFAULT "/var/lib/podium-fake-driver"
#define LOG_ROTATE_BYTES (32l << 20)

static volatile sig_atomic_t stopped;

struct settings {
    char dir[512];
    char node[64];
    char product[64];
    unsigned gpus;
    uint64_t memory;
    uint64_t sample_ns;
};

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("podium-fake-gpud: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

static const char *setting(const char *name, const char *fallback) {
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : fallback;
}

static uint64_t number_setting(const char *name, const char *fallback, uint64_t min, uint64_t max) {
    uint64_t value = 0;
    const char *text = setting(name, fallback);
    if (!parse_bytes(text, &value) || value < min || value > max)
        fail("%s=%s: must be a number from %llu to %llu", name, text, (unsigned long long)min, (unsigned long long)max);
    return value;
}

static struct settings read_settings(void) {
    struct settings s = {0};
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    snprintf(s.dir, sizeof s.dir, "%s", setting("FAKE_GPU_DIR", DIR_DEFAULT));
    snprintf(s.node, sizeof s.node, "%s", setting("FAKE_GPU_NODE", host));
    snprintf(s.product, sizeof s.product, "%s", setting("FAKE_GPU_PRODUCT", "Podium-Fake-GPU"));
    s.gpus = (unsigned)number_setting("FAKE_GPUS", "1", 0, MAX_GPUS);
    s.memory = number_setting("FAKE_GPU_MEMORY", "16Gi", 1, UINT64_MAX);
    s.sample_ns = number_setting("FAKE_GPU_SAMPLE_MS", "20", 1, 10000) * 1000000ull;
    return s;
}

/* ---- the state file ---- */
static uint64_t hash(const char *text, uint64_t seed) {
    uint64_t h = 14695981039346656037ull ^ seed;
    for (; *text != '\0'; text++) h = (h ^ (unsigned char)*text) * 1099511628211ull;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
    return h ^ (h >> 31);
}

/* A GPU keeps its UUID, as hardware does: it depends only on the node's name and the index. */
static void make_uuid(const char *node, unsigned index, char out[48]) {
    char seed[96];
    snprintf(seed, sizeof seed, "%s/%u", node, index);
    uint64_t a = hash(seed, 1), b = hash(seed, 2);
    snprintf(out, 48, "GPU-%08x-%04x-%04x-%04x-%012llx", (unsigned)(a >> 32), (unsigned)(a >> 16) & 0xffff,
             (unsigned)a & 0xffff, (unsigned)(b >> 48), (unsigned long long)b & 0xffffffffffffull);
}

/* Copies the product of a GPU from a comma-separated list. The last product applies to all further GPUs. */
static void copy_product(const char *list, unsigned index, char out[64]) {
    const char *next;
    while (index-- > 0 && (next = strchr(list, ',')) != NULL) list = next + 1;
    snprintf(out, 64, "%.*s", (int)strcspn(list, ","), list);
}

static void describe(struct state *state, const struct settings *s) {
    state->pid_namespace = own_pid_namespace();
    memcpy(state->magic, STATE_MAGIC, sizeof state->magic);
    state->version = STATE_VERSION;
    state->size = sizeof *state;
    state->gpu_count = s->gpus;
    snprintf(state->node, sizeof state->node, "%s", s->node);
    for (unsigned i = 0; i < s->gpus; i++) {
        make_uuid(s->node, i, state->gpus[i].uuid);
        copy_product(s->product, i, state->gpus[i].product);
        state->gpus[i].memory_total = s->memory;
        state->gpus[i].pci_bus = 0x0a + i;
    }
}

/* The file of an earlier run, with its faults and checkpoints, is kept if it describes the same GPUs. */
static int is_same(const struct state *a, const struct state *b) {
    int same = a->gpu_count == b->gpu_count;
    for (unsigned i = 0; same && i < b->gpu_count; i++)
        same = strcmp(a->gpus[i].uuid, b->gpus[i].uuid) == 0 && strcmp(a->gpus[i].product, b->gpus[i].product) == 0 &&
               a->gpus[i].memory_total == b->gpus[i].memory_total;
    return same;
}

static void open_state(struct view *view, const char *path, const struct settings *s) {
    static struct state fresh;
    describe(&fresh, s);
    if (view_refresh(view, path, 1) == 0) {
        if (is_same(view->state, &fresh)) return;
        view_close(view);
    }
    char temporary[600];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    int fd = open(temporary, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) fail("%s: %s; FAKE_GPU_DIR must be a folder in which root can write", temporary, strerror(errno));
    if (write(fd, &fresh, sizeof fresh) != (ssize_t)sizeof fresh || fchmod(fd, 0644) != 0 || close(fd) != 0 ||
        rename(temporary, path) != 0)
        fail("%s: %s", path, strerror(errno));
    int error = view_refresh(view, path, 1);
    if (error != 0) fail("%s: %s", path, strerror(error));
}

/* ---- the log ---- */
static FILE *open_log(const char *path, const struct settings *s) {
    FILE *log = fopen(path, "ae");
    if (log == NULL) fail("%s: %s", path, strerror(errno));
    fprintf(log,
            "# podium-fake-gpud 1 node=%s gpus=%u sample_ms=%.1f\n"
            "# t_start t_end gpu_uuid pid container_id ns t_start_latest t_end_earliest wall_start wall_end comm\n"
            "# Times are seconds of CLOCK_MONOTONIC. Work began in (t_start, t_start_latest] and last continued in\n"
            "# (t_end_earliest, t_end]. Work in [t_start_latest, t_end_earliest] is certain.\n",
            s->node, s->gpus, (double)s->sample_ns / 1e6);
    fflush(log);
    return log;
}

static FILE *rotate_log(FILE *log, const char *path, const struct settings *s) {
    char old[640];
    struct stat file;
    if (fstat(fileno(log), &file) != 0 || file.st_size < LOG_ROTATE_BYTES) return log;
    snprintf(old, sizeof old, "%s.1", path);
    rename(path, old);
    FILE *fresh = open_log(path, s);
    fflush(log);
    dup2(fileno(fresh), fileno(log)); /* the sampler uses the same stream */
    fclose(fresh);
    return log;
}

/* ---- commands ---- */
static void on_signal(int number) {
    (void)number;
    stopped = 1;
}

static int run(void) {
    struct settings s = read_settings();
    char state_file[600], log_file[600], lock_file[600];
    struct view view = {0};
    static struct gpu_measurements measurements[MAX_GPUS];
    snprintf(state_file, sizeof state_file, "%s/state", s.dir);
    snprintf(log_file, sizeof log_file, "%s/work.log", s.dir);
    snprintf(lock_file, sizeof lock_file, "%s/gpud.lock", s.dir);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    umask(022);
    if (mkdir(s.dir, 0755) != 0 && errno != EEXIST) fail("%s: %s", s.dir, strerror(errno));
    int lock = open(lock_file, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (lock < 0) fail("%s: %s", lock_file, strerror(errno));
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        fprintf(stderr, "podium-fake-gpud: another daemon uses %s; waiting until it ends\n", s.dir);
        while (flock(lock, LOCK_EX) != 0)
            if (errno != EINTR || stopped) return 143;
    }
    open_state(&view, state_file, &s);
    FILE *log = open_log(log_file, &s);
    struct sampler *sampler = sampler_new(view.state, log);
    if (sampler == NULL) fail("cannot allocate memory or read /proc: %s", strerror(errno));
    setpriority(PRIO_PROCESS, 0, -10); /* for punctual samples on a busy machine; it may fail without permission */
    printf("podium-fake-gpud: node %s, %u GPUs, %s, sampled every %.1f ms, state %s\n", s.node, s.gpus, s.product,
           (double)s.sample_ns / 1e6, state_file);
    for (unsigned i = 0; i < s.gpus; i++) printf("  %u %s\n", i, view.state->gpus[i].uuid);
    fflush(stdout);
    for (uint64_t next = monotonic_ns(); !stopped;) {
        if (view_refresh(&view, state_file, 1) != 0) open_state(&view, state_file, &s); /* the file was removed */
        sampler_sample(sampler, view.state, measurements);
        if (state_write_begin(&view) == 0) {
            for (unsigned i = 0; i < s.gpus; i++) view.state->gpus[i].measurements = measurements[i];
            view.state->pid_namespace = own_pid_namespace();
            view.state->updated_ns = monotonic_ns();
            state_write_end(&view);
        }
        log = rotate_log(log, log_file, &s);
        uint64_t now = monotonic_ns();
        /* After a delay it catches up, but leaves CPU time for other processes. */
        next = next + s.sample_ns > now ? next + s.sample_ns : now + s.sample_ns / 4;
        struct timespec until = {.tv_sec = (time_t)(next / 1000000000ull), .tv_nsec = (long)(next % 1000000000ull)};
        while (!stopped && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
    }
    sampler_finish(sampler);
    sampler_free(sampler);
    fclose(log);
    view_close(&view);
    return 143;
}

static void open_for_command(struct view *view, int writable) {
    char path[600];
    snprintf(path, sizeof path, "%s/state", setting("FAKE_GPU_DIR", DIR_DEFAULT));
    int error = view_refresh(view, path, writable);
    if (error != 0) fail("%s: %s; start podium-fake-gpud on this node", path, strerror(error));
}

static int set(int count, char **words) {
    struct view view = {0};
    int changed = 0;
    if (count < 2) fail("set: give a GPU (UUID, index or all) and at least one field=value; fields:\n%s", FAULT_HELP);
    for (int i = 1; i < count; i++) {
        struct gpu_faults probe = {0};
        const char *problem = fault_set(&probe, words[i]);
        if (problem != NULL) fail("set: %s: %s; fields:\n%s", words[i], problem, FAULT_HELP);
    }
    open_for_command(&view, 1);
    int error = state_write_begin(&view);
    if (error != 0) fail("cannot lock the state: %s", strerror(error));
    for (unsigned gpu = 0; gpu < view.state->gpu_count; gpu++) {
        char index[16];
        snprintf(index, sizeof index, "%u", gpu);
        if (strcmp(words[0], "all") != 0 && strcmp(words[0], index) != 0 &&
            strcmp(words[0], view.state->gpus[gpu].uuid) != 0)
            continue;
        changed++;
        for (int i = 1; i < count; i++) fault_set(&view.state->gpus[gpu].faults, words[i]);
    }
    state_write_end(&view);
    if (changed == 0) fail("set: no GPU %s on this node; `podium-fake-gpud show` lists them", words[0]);
    return 0;
}

static int checkpoint(int count, char **words) {
    struct view view = {0};
    if (count < 1) fail("checkpoint: give at least one field=value; fields:\n%s", CHECKPOINT_FAULT_HELP);
    for (int i = 0; i < count; i++) {
        struct checkpoint_faults probe = {0};
        const char *problem = checkpoint_fault_set(&probe, words[i]);
        if (problem != NULL) fail("checkpoint: %s: %s; fields:\n%s", words[i], problem, CHECKPOINT_FAULT_HELP);
    }
    open_for_command(&view, 1);
    int error = state_write_begin(&view);
    if (error != 0) fail("cannot lock the state: %s", strerror(error));
    for (int i = 0; i < count; i++) checkpoint_fault_set(&view.state->checkpoint_faults, words[i]);
    state_write_end(&view);
    return 0;
}

/* Prints a line for each GPU of each process that uses CUDA. NVML does not list checkpointed processes; this does. A
 * line ends in "off" if the memory is not on the GPU. A CHECKPOINTED process without "off" is being restored. */
static void show_processes(const struct state *state) {
    static const char *const NAMES[] = {"RUNNING", "LOCKED", "CHECKPOINTED", "FAILED"};
    for (uint32_t i = 0; i < state->cuda_used; i++) {
        const struct cuda_process *process = &state->cuda[i];
        if (process->pid == 0 || !cuda_process_is_alive(state, process)) continue;
        int elsewhere = process->migrated && !process->resident; /* its GPUs are those of its old node */
        for (unsigned gpu = 0; gpu < MAX_GPUS; gpu++) {
            if ((process->gpus & (1u << gpu)) == 0) continue;
            char index[16] = "-";
            if (!elsewhere) snprintf(index, sizeof index, "%u", gpu);
            printf("process %u on %s %s memory %llu%s\n", process->pid, index, NAMES[process->state & 3],
                   (unsigned long long)process->bytes[gpu], process->resident ? "" : " off");
        }
    }
}

static int show(void) {
    struct view view = {0};
    open_for_command(&view, 0);
    printf("node %s, sampled %.3f s ago\n", view.state->node, (double)(monotonic_ns() - view.state->updated_ns) / 1e9);
    for (unsigned i = 0; i < view.state->gpu_count; i++) {
        struct gpu gpu;
        state_read_gpu(view.state, i, &gpu);
        cuda_processes_count(view.state, i, &gpu.measurements);
        printf("%u %s %s memory %llu/%llu utilization %u%% processes %u%s\n", i, gpu.uuid, gpu.product,
               (unsigned long long)(gpu.measurements.memory_used + gpu.faults.memory),
               (unsigned long long)gpu.memory_total, gpu.measurements.utilization, gpu.measurements.process_count,
               gpu.faults.lost ? " LOST" : "");
    }
    show_processes(view.state);
    return 0;
}

static int uuid(int count, char **words) {
    char out[48];
    if (count != 2) fail("uuid: give the node's name and the index of the GPU");
    make_uuid(words[0], (unsigned)strtoul(words[1], NULL, 10), out);
    puts(out);
    return 0;
}

int main(int argc, char **argv) {
    const char *command = argc < 2 ? "run" : argv[1];
    if (strcmp(command, "run") == 0) return run();
    if (strcmp(command, "set") == 0) return set(argc - 2, argv + 2);
    if (strcmp(command, "checkpoint") == 0) return checkpoint(argc - 2, argv + 2);
    if (strcmp(command, "show") == 0) return show();
    if (strcmp(command, "uuid") == 0) return uuid(argc - 2, argv + 2);
    int help = strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0;
    fprintf(help ? stdout : stderr,
            "podium-fake-gpud: simulate GPUs on a node that has none\n\n"
            "  podium-fake-gpud [run]                    run the daemon; it writes $FAKE_GPU_DIR/state and work.log\n"
            "  podium-fake-gpud show                     print the GPUs and the processes that use CUDA\n"
            "  podium-fake-gpud set GPU field=value ...  inject faults of a GPU (UUID, index or all)\n"
            "  podium-fake-gpud checkpoint field=value   inject faults of cuCheckpointProcess* calls\n"
            "  podium-fake-gpud uuid NODE INDEX          print the UUID of a node's GPU\n\n"
            "settings (environment): FAKE_GPU_DIR (" DIR_DEFAULT
            "), FAKE_GPUS (1), FAKE_GPU_MEMORY (16Gi),\n"
            "FAKE_GPU_PRODUCT (Podium-Fake-GPU), FAKE_GPU_NODE (host name), FAKE_GPU_SAMPLE_MS (20)\n\n"
            "fields of set:\n%s\nfields of checkpoint:\n%s",
            FAULT_HELP, CHECKPOINT_FAULT_HELP);
    return help ? 0 : 2;
}

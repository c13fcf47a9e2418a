/* Parse faults. See faults.h. */
#define _GNU_SOURCE
#include "faults.h"

#include <stdlib.h>
#include <string.h>

const char FAULT_HELP[] =
    "  temperature=C       degrees Celsius\n"
    "  utilization=PERCENT\n"
    "  sm_clock=MHZ        graphics and SM clock\n"
    "  throttle=NAMES      clocks event reasons, comma-separated, or a number:\n"
    "                      idle, sw_power_cap, hw_slowdown, sw_thermal, hw_thermal, hw_power_brake\n"
    "  ecc=N               uncorrected ECC errors; ecc_corrected=N\n"
    "  xid=N               an Xid event, each time it is set\n"
    "  remap_failed=1      row remapping failed; retired_pending=1\n"
    "  memory=BYTES        used by an unrelated process (2Gi); memory_pid=PID lists that process\n"
    "  health=lost         the GPU fell off the bus: every call returns GPU_IS_LOST\n"
    "  health=ok           clears all faults\n"
    "An empty value (temperature=) clears one fault.\n";

static const struct {
    const char *name;
    uint64_t bit;
} THROTTLES[] = {{"idle", 0x1},        {"sw_power_cap", 0x4}, {"hw_slowdown", 0x8},
                 {"sw_thermal", 0x20}, {"hw_thermal", 0x40},  {"hw_power_brake", 0x80}};

int parse_bytes(const char *text, uint64_t *out) {
    static const struct {
        const char *unit;
        uint64_t factor;
    } UNITS[] = {{"", 1},     {"Ki", 1ull << 10}, {"Mi", 1ull << 20}, {"Gi", 1ull << 30}, {"Ti", 1ull << 40},
                 {"k", 1000}, {"M", 1000000},     {"G", 1000000000}};
    char *end;
    if (*text < '0' || *text > '9') return 0;
    uint64_t value = strtoull(text, &end, 10);
    for (unsigned i = 0; i < sizeof UNITS / sizeof *UNITS; i++)
        if (strcmp(end, UNITS[i].unit) == 0) {
            *out = value * UNITS[i].factor;
            return 1;
        }
    return 0;
}

static int parse_throttle(const char *text, uint64_t *out) {
    char *end;
    uint64_t bits = strtoull(text, &end, 0);
    if (end != text && *end == '\0') {
        *out = bits;
        return 1;
    }
    for (bits = 0; *text != '\0';) {
        size_t length = strcspn(text, ",");
        uint64_t bit = 0;
        for (unsigned i = 0; i < sizeof THROTTLES / sizeof *THROTTLES; i++)
            if (strlen(THROTTLES[i].name) == length && strncmp(THROTTLES[i].name, text, length) == 0)
                bit = THROTTLES[i].bit;
        if (bit == 0) return 0;
        bits |= bit;
        text += length + (text[length] == ',');
    }
    *out = bits;
    return 1;
}

struct field {
    const char *name;
    size_t offset;
    int wide;     /* 1: 64 bits, 0: 32 bits */
    uint32_t bit; /* of enum fault, for fields that replace a measured reading */
};

#define FIELD(name, member, wide, bit) {name, offsetof(struct gpu_faults, member), wide, bit}
static const struct field FIELDS[] = {
    FIELD("temperature", temperature, 0, FAULT_TEMPERATURE),
    FIELD("utilization", utilization, 0, FAULT_UTILIZATION),
    FIELD("sm_clock", sm_clock, 0, FAULT_SM_CLOCK),
    FIELD("throttle", throttle, 1, FAULT_THROTTLE),
    FIELD("ecc", ecc_uncorrected, 1, 0),
    FIELD("ecc_corrected", ecc_corrected, 1, 0),
    FIELD("memory", memory, 1, 0),
    FIELD("memory_pid", memory_pid, 0, 0),
    FIELD("xid", xid, 0, 0),
    FIELD("remap_failed", remap_failed, 0, 0),
    FIELD("retired_pending", retired_pending, 0, 0),
};

static const char *set_health(struct gpu_faults *faults, const char *value) {
    if (strcmp(value, "lost") == 0) {
        faults->lost = 1;
        return NULL;
    }
    if (strcmp(value, "ok") != 0 && *value != '\0') return "health must be lost or ok";
    uint32_t events = faults->xid_count; /* must never decrease, because a new value is a new event */
    *faults = (struct gpu_faults){.xid_count = events};
    return NULL;
}

const char *fault_set(struct gpu_faults *faults, const char *assignment) {
    const char *value = strchr(assignment, '=');
    if (value == NULL) return "must have the form field=value";
    size_t length = (size_t)(value++ - assignment);
    if (length == 6 && strncmp(assignment, "health", 6) == 0) return set_health(faults, value);
    for (unsigned i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        const struct field *field = &FIELDS[i];
        uint64_t number = 0;
        if (strlen(field->name) != length || strncmp(field->name, assignment, length) != 0) continue;
        int parsed = *value == '\0' ||
                     (field->bit == FAULT_THROTTLE ? parse_throttle(value, &number) : parse_bytes(value, &number));
        if (!parsed || (!field->wide && number > UINT32_MAX)) return "invalid value for this field";
        if (*value == '\0') faults->set &= ~field->bit;
        else faults->set |= field->bit;
        if (field->wide) memcpy((char *)faults + field->offset, &number, sizeof number);
        else memcpy((char *)faults + field->offset, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
        if (field->offset == offsetof(struct gpu_faults, xid) && *value != '\0') faults->xid_count++;
        return NULL;
    }
    return "unknown field";
}

const char CHECKPOINT_FAULT_HELP[] =
    "  pid=PID             the only process concerned; empty: all processes\n"
    "  hang=CALLS          calls that do not return while this is set;\n"
    "                      CALLS: lock, checkpoint, restore, unlock, comma-separated\n"
    "  fail=CALLS          calls that fail and change nothing\n"
    "  break=CALLS         calls that put the process into the state FAILED\n"
    "  busy=1              the work of the process never ends, so a lock times out\n"
    "  lie=1               a checkpoint returns success but frees no memory\n"
    "  latency_ms=N        latency of each copy; speed=BYTES per second (8Gi), empty: copies take no time\n"
    "  all=ok              clears all of these faults\n";

static int parse_calls(const char *text, uint64_t *out) {
    static const char *const NAMES[CALLS] = {
        [CALL_LOCK] = "lock", [CALL_CHECKPOINT] = "checkpoint", [CALL_RESTORE] = "restore", [CALL_UNLOCK] = "unlock"};
    for (*out = 0; *text != '\0';) {
        size_t length = strcspn(text, ",");
        uint64_t bit = 0;
        for (unsigned call = 1; call < CALLS; call++)
            if (strlen(NAMES[call]) == length && strncmp(NAMES[call], text, length) == 0) bit = 1u << call;
        if (bit == 0) return 0;
        *out |= bit;
        text += length + (text[length] == ',');
    }
    return 1;
}

const char *checkpoint_fault_set(struct checkpoint_faults *faults, const char *assignment) {
    const struct {
        const char *name;
        int (*parse)(const char *, uint64_t *);
        uint32_t *narrow;
        uint64_t *wide;
    } KNOWN[] = {
        {"pid=", parse_bytes, &faults->pid, NULL},
        {"hang=", parse_calls, &faults->hang, NULL},
        {"fail=", parse_calls, &faults->fail, NULL},
        {"break=", parse_calls, &faults->breaks, NULL},
        {"busy=", parse_bytes, &faults->busy, NULL},
        {"lie=", parse_bytes, &faults->lie, NULL},
        {"latency_ms=", parse_bytes, NULL, &faults->latency_ms},
        {"speed=", parse_bytes, NULL, &faults->speed},
    };
    if (strcmp(assignment, "all=ok") == 0) {
        *faults = (struct checkpoint_faults){0};
        return NULL;
    }
    for (unsigned i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        size_t length = strlen(KNOWN[i].name);
        uint64_t value = 0;
        if (strncmp(KNOWN[i].name, assignment, length) != 0) continue;
        if (assignment[length] != '\0' && !KNOWN[i].parse(assignment + length, &value))
            return "invalid value for this field";
        if (KNOWN[i].narrow != NULL && value > UINT32_MAX) return "invalid value for this field";
        if (KNOWN[i].narrow != NULL) *KNOWN[i].narrow = (uint32_t)value;
        else *KNOWN[i].wide = value;
        return NULL;
    }
    return "unknown field";
}

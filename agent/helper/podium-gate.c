/*
 * podium-gate: blocks a trial until its first time slice on its GPU.
 *
 * It is the init container `podium-gate` of every trial's pod. It runs as any user in any image, also in scratch, so it
 * is static and uses no files but the socket and the checkpoint folder. The agent puts it into the volume at /podium.
 * The same program is the trial's preStop hook (hook.h).
 *
 * Protocol (unix stream socket):
 *   - The gate sends "gate\n". With a checkpoint folder it sends "gate {"checkpoint": <marker or null>}\n", the marker of
 *     the checkpoint from which this attempt continues.
 *   - The agent identifies the peer by SO_PEERCRED. It sends "wait <reason>\n" at least every 10 s, and finally "go\n".
 *   - Only whole lines count, because an agent may die while it writes one.
 *   - After any failure (no socket, refused, closed, no line in time) the gate reconnects without a limit. An agent
 *     that restarts finds it again.
 *
 * Before it exits, the gate prints the marker that it reported, for an agent that starts later.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "hook.h"
#include "marker.h"

#define DEFAULT_SOCKET "/podium/agent.sock"
#define DEFAULT_SILENCE_MS 30000
#define BACKOFF_FIRST_MS 100
#define BACKOFF_LAST_MS 1000
#define LINE_MAX_BYTES 4096

enum { EXIT_GO = 0, EXIT_USAGE = 2, EXIT_STOPPED = 143 };
enum outcome { GO, DISCONNECTED };

static volatile sig_atomic_t stopped;
static sigset_t mask_while_waiting;
static char last_line[LINE_MAX_BYTES];
static struct marker reported; /* the marker that the agent was last sent; empty: no checkpoint folder */
static int marker_existed;

static const char HELP[] =
    "podium-gate: wait for the first time slice of this trial on its GPU\n"
    "\n"
    "usage: podium-gate gate [--socket PATH] [--silence MILLISECONDS]\n"
    "       podium-gate hook\n"
    "\n"
    "gate: Podium runs this helper as an init container of every trial. The helper asks the agent of the node, over a\n"
    "unix socket, whether the trial may start. It prints the reason for waiting whenever it changes. Exit codes:\n"
    "  0    the trial's first time slice starts, and its own containers start now\n"
    "  143  a signal (SIGTERM or SIGINT) stopped it while it waited\n"
    "  2    wrong arguments\n"
    "If the agent is absent, restarts or sends nothing, the helper reconnects without a limit.\n"
    "\n"
    "hook: the trial's preStop hook. It creates " REQUEST_NAME " in $PODIUM_CHECKPOINT to request a\n"
    "checkpoint, and waits until the script replaces " MARKER_NAME ". It stops waiting shortly before\n"
    "$PODIUM_GRACE_SECONDS are over. If that marker does not have \"onRequest\": true, the hook only waits until a\n"
    "script that is still starting handles SIGTERM. The exit code is always 0.\n"
    "\n"
    "  --socket PATH    socket of the agent (default: $PODIUM_SOCKET, otherwise " DEFAULT_SOCKET ")\n"
    "  --silence MS     reconnect after this time without a line from the agent (default: 30000)\n"
    "\n"
    "If a trial waits for long, `podium watch JOB` shows which trial holds the GPU and why, and\n"
    "`kubectl logs POD -c podium-gate` shows the reasons that the agent sent.\n";

static void on_signal(int number) {
    (void)number;
    stopped = 1;
}

static void put(int fd, const char *text) {
    size_t left = strlen(text);
    while (left > 0) {
        ssize_t n = write(fd, text, left);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; /* a closed output must not block the trial */
        text += n;
        left -= (size_t)n;
    }
}

/* Prints a line unless it repeats the previous one, so that a long wait does not fill the log. */
static void print_change(const char *what, const char *detail) {
    char line[LINE_MAX_BYTES];
    size_t used = strlen(what), more = strlen(detail);
    if (used > sizeof line - 2) used = sizeof line - 2;
    if (more > sizeof line - 2 - used) more = sizeof line - 2 - used;
    memcpy(line, what, used);
    memcpy(line + used, detail, more);
    line[used + more] = '\n';
    line[used + more + 1] = '\0';
    if (strcmp(line, last_line) == 0) return;
    strcpy(last_line, line);
    put(STDOUT_FILENO, line);
}

static long long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits for the descriptor, or only for the time if fd is -1. Signals are unblocked only here, so none is missed. */
static int wait_for(int fd, short events, long long ms) {
    struct pollfd p = {.fd = fd, .events = events};
    struct timespec t = {.tv_sec = ms > 0 ? ms / 1000 : 0, .tv_nsec = ms > 0 ? (ms % 1000) * 1000000 : 0};
    int n = ppoll(&p, fd < 0 ? 0 : 1, &t, &mask_while_waiting);
    if (stopped) _exit(EXIT_STOPPED);
    return n;
}

/* Reads the marker and writes the first line of a connection. */
static void write_hello(char *line) {
    int folder = open_checkpoint_folder();
    reported.length = 0;
    strcpy(line, "gate\n");
    if (folder < 0) return;
    marker_existed = read_marker(folder, &reported);
    if (!marker_existed) reported.length = strlen(strcpy(reported.text, "null"));
    close(folder);
    strcpy(line, "gate {\"checkpoint\": ");
    strcat(line, reported.text);
    strcat(line, "}\n");
}

/* Returns whether the marker has changed: the pod of the previous attempt may complete a checkpoint meanwhile. */
static int marker_changed(void) {
    struct marker now;
    int folder = open_checkpoint_folder();
    if (folder < 0 || reported.length == 0) return 0;
    int exists = read_marker(folder, &now);
    close(folder);
    return exists != marker_existed || (exists && was_replaced(&reported, &now));
}

/* Logs the checkpoint from which the trial continues. Removes a request, which was for the previous attempt. */
static void finish(void) {
    int folder = open_checkpoint_folder();
    if (reported.length == 0 || folder < 0) return;
    put(STDOUT_FILENO, "saved: ");
    put(STDOUT_FILENO, reported.text);
    put(STDOUT_FILENO, "\n");
    remove_request(folder);
    close(folder);
}

static int connect_to(const struct sockaddr_un *address) {
    char line[MARKER_MAX_BYTES + 64];
    write_hello(line); /* before connecting, so that the agent does not wait for a slow volume */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
        int error = errno; /* EAGAIN: the agent's backlog is full; a unix socket does not wait for it */
        close(fd);
        errno = error;
        return -1;
    }
    size_t length = strlen(line);
    if (send(fd, line, length, MSG_NOSIGNAL) != (ssize_t)length) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* Reads lines until the agent sends "go" or the connection fails. Sets `*received` after a whole line. */
static enum outcome read_lines(int fd, long long silence_ms, int *received) {
    char line[LINE_MAX_BYTES];
    size_t used = 0;
    long long deadline = now_ms() + silence_ms;
    for (;;) {
        long long left = deadline - now_ms();
        if (left <= 0) {
            print_change("wait: the agent sends nothing; reconnecting", "");
            return DISCONNECTED;
        }
        int ready = wait_for(fd, POLLIN, left);
        if (ready < 0 && errno != EINTR) return DISCONNECTED;
        if (ready <= 0) continue;
        ssize_t n = recv(fd, line + used, sizeof line - used, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n <= 0) return DISCONNECTED;
        used += (size_t)n;
        char *end;
        while ((end = memchr(line, '\n', used)) != NULL) {
            size_t length = (size_t)(end - line) + 1;
            *end = '\0';
            if (end > line && end[-1] == '\r') end[-1] = '\0';
            *received = 1;
            deadline = now_ms() + silence_ms;
            if (strcmp(line, "go") == 0) return GO;
            if (strncmp(line, "wait ", 5) == 0) print_change("wait: ", line + 5);
            memmove(line, line + length, used - length);
            used -= length;
        }
        if (used == sizeof line) return DISCONNECTED; /* longer than any line of the protocol */
    }
}

static int gate(const struct sockaddr_un *address, long long silence_ms) {
    long long backoff = BACKOFF_FIRST_MS;
    for (;;) {
        int fd = connect_to(address), received = 0;
        if (fd < 0) {
            print_change("wait: the node's agent does not answer: ", strerror(errno));
        } else {
            if (read_lines(fd, silence_ms, &received) == GO && !marker_changed()) {
                finish();
                print_change("go: this trial's first time slice starts", "");
                return EXIT_GO;
            }
            close(fd);
            if (received) backoff = BACKOFF_FIRST_MS;
        }
        wait_for(-1, 0, backoff);
        backoff = backoff * 2 > BACKOFF_LAST_MS ? BACKOFF_LAST_MS : backoff * 2;
    }
}

static int usage_error(const char *problem, const char *value, const char *cure) {
    put(STDERR_FILENO, "podium-gate: ");
    put(STDERR_FILENO, problem);
    put(STDERR_FILENO, value);
    put(STDERR_FILENO, cure);
    put(STDERR_FILENO, "\n");
    return EXIT_USAGE;
}

static void install_signal_handlers(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, &mask_while_waiting);
    sigdelset(&mask_while_waiting, SIGTERM);
    sigdelset(&mask_while_waiting, SIGINT);
    sigaction(SIGTERM, &action, NULL); /* without a handler, PID 1 ignores these signals */
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv) {
    const char *path = getenv("PODIUM_SOCKET");
    long long silence_ms = DEFAULT_SILENCE_MS;
    if (path == NULL || *path == '\0') path = DEFAULT_SOCKET;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        put(STDOUT_FILENO, HELP);
        return EXIT_GO;
    }
    if (strcmp(argv[1], "hook") == 0) {
        if (argc > 2) return usage_error("hook takes no arguments: ", argv[2], " (see --help)");
        put(STDOUT_FILENO, wait_for_checkpoint());
        put(STDOUT_FILENO, "\n");
        return EXIT_GO;
    }
    if (strcmp(argv[1], "gate") != 0)
        return usage_error("unknown command: ", argv[1], " (commands: gate, hook; see --help)");
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            put(STDOUT_FILENO, HELP);
            return EXIT_GO;
        }
        if (i + 1 >= argc) return usage_error("option without a value: ", argv[i], " (see --help)");
        if (strcmp(argv[i], "--socket") == 0) {
            path = argv[++i];
        } else if (strcmp(argv[i], "--silence") == 0) {
            char *end;
            silence_ms = strtoll(argv[++i], &end, 10);
            if (*end != '\0' || silence_ms <= 0)
                return usage_error("--silence: ", argv[i], " is not a number of milliseconds greater than 0");
        } else {
            return usage_error("unknown option: ", argv[i], " (see --help)");
        }
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return usage_error("--socket: ", path, " is too long for a unix socket (107 bytes); use a shorter path");
    strcpy(address.sun_path, path);
    install_signal_handlers();
    return gate(&address, silence_ms);
}

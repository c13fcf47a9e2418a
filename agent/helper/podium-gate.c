/*
 * podium-gate: waits in the trial's own image until it is the trial's turn on its GPU.
 *
 * Runs as the init container `podium-gate` of every trial's pod, as any user, in any image (scratch too): hence static,
 * no files but the socket and the checkpoint folder. The agent's device plugin mounts it at /podium. The same program is
 * the trial's preStop hook (hook.c).
 *
 * Protocol (unix stream): we send "gate\n", or, where there is a checkpoint folder, "gate {"checkpoint": <marker or null>}\n":
 * the save that this attempt will go on from. The agent, who knows the peer by SO_PEERCRED, answers lines "wait <reason>\n"
 * at least every 10 s, and at last "go\n". Only whole lines count: an agent that dies in the middle of one said nothing.
 * Whatever breaks (no socket, refused, closed, silent), we connect anew, for ever: an agent that restarts must find us.
 * What was said of the save is printed before the end, so that also an agent that starts after it can know.
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
enum outcome { GO, BROKEN };

static volatile sig_atomic_t stopped;
static sigset_t mask_while_waiting;
static char last_said[LINE_MAX_BYTES];
static struct marker saved; /* as last said to an agent; empty: no checkpoint folder */
static int save_there;

static const char HELP[] =
    "podium-gate: waits until it is this trial's turn on its GPU\n"
    "\n"
    "usage: podium-gate gate [--socket PATH] [--silence MILLISECONDS]\n"
    "       podium-gate hook\n"
    "\n"
    "Podium puts this helper before every trial, as an init container. It asks the agent of the node, over a unix\n"
    "socket, whether the trial may start; prints why it waits whenever the reason changes; and ends with\n"
    "  0    it is this trial's turn: the trial's own containers start now\n"
    "  143  it was told to stop (SIGTERM or SIGINT) while waiting\n"
    "  2    it was called wrongly\n"
    "An agent that is absent, restarts or falls silent is no error: the helper connects anew for as long as it takes.\n"
    "\n"
    "hook is the trial's preStop hook: it asks the script for a save (the file " REQUEST_NAME " in\n"
    "$PODIUM_CHECKPOINT) and waits until " MARKER_NAME " was replaced, or until $PODIUM_GRACE_SECONDS are nearly over.\n"
    "It does so only if that marker says \"onRequest\": true, and always ends with 0.\n"
    "\n"
    "  --socket PATH    the agent's socket   (else $PODIUM_SOCKET, else " DEFAULT_SOCKET ")\n"
    "  --silence MS     connect anew after so long without a line from the agent (30000)\n"
    "\n"
    "A trial that waits here for long: `podium watch JOB` says who holds the GPU and why; `kubectl logs POD -c podium-gate`\n"
    "shows what this helper was told.\n";

static void on_signal(int number) {
    (void)number;
    stopped = 1;
}

static void put(int fd, const char *text) {
    size_t left = strlen(text);
    while (left > 0) {
        ssize_t n = write(fd, text, left);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; /* nobody reads our output: no reason to let the trial wait */
        text += n;
        left -= (size_t)n;
    }
}

/* Prints a reason once; the same reason again is silence, so that a long wait does not fill the log. */
static void say(const char *what, const char *detail) {
    char line[LINE_MAX_BYTES];
    size_t used = strlen(what), more = strlen(detail);
    if (used > sizeof line - 2) used = sizeof line - 2;
    if (more > sizeof line - 2 - used) more = sizeof line - 2 - used;
    memcpy(line, what, used);
    memcpy(line + used, detail, more);
    line[used + more] = '\n';
    line[used + more + 1] = '\0';
    if (strcmp(line, last_said) == 0) return;
    strcpy(last_said, line);
    put(STDOUT_FILENO, line);
}

static long long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits for the descriptor (or only for time, fd -1). Signals are let in only here, so none is missed. */
static int wait_for(int fd, short events, long long ms) {
    struct pollfd p = {.fd = fd, .events = events};
    struct timespec t = {.tv_sec = ms > 0 ? ms / 1000 : 0, .tv_nsec = ms > 0 ? (ms % 1000) * 1000000 : 0};
    int n = ppoll(&p, fd < 0 ? 0 : 1, &t, &mask_while_waiting);
    if (stopped) _exit(EXIT_STOPPED);
    return n;
}

/* The first line of a talk; also where the save is looked at. */
static void hello(char *line) {
    int folder = open_checkpoint();
    saved.length = 0;
    strcpy(line, "gate\n");
    if (folder < 0) return;
    save_there = read_marker(folder, &saved);
    if (!save_there) saved.length = strlen(strcpy(saved.text, "null"));
    close(folder);
    strcpy(line, "gate {\"checkpoint\": ");
    strcat(line, saved.text);
    strcat(line, "}\n");
}

/* Another save than we said: the pod of the attempt before made it while we waited. */
static int saved_meanwhile(void) {
    struct marker now;
    int folder = open_checkpoint();
    if (folder < 0 || saved.length == 0) return 0;
    int there = read_marker(folder, &now);
    close(folder);
    return there != save_there || (there && was_replaced(&saved, &now));
}

/* Before the trial starts: what it goes on from, for the log; an old request was to the attempt before. */
static void take_leave(void) {
    int folder = open_checkpoint();
    if (saved.length == 0 || folder < 0) return;
    put(STDOUT_FILENO, "saved: ");
    put(STDOUT_FILENO, saved.text);
    put(STDOUT_FILENO, "\n");
    drop_request(folder);
    close(folder);
}

static int connect_to(const struct sockaddr_un *address) {
    char line[MARKER_MAX_BYTES + 64];
    hello(line); /* before we are connected: the agent does not wait for a slow volume */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
        int why = errno; /* EAGAIN: the agent's queue is full, which a unix socket does not wait for */
        close(fd);
        errno = why;
        return -1;
    }
    size_t length = strlen(line);
    if (send(fd, line, length, MSG_NOSIGNAL) != (ssize_t)length) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

/* Reads lines until the agent says go, or the talk breaks off. *heard: at least one whole line came. */
static enum outcome listen_to(int fd, long long silence_ms, int *heard) {
    char line[LINE_MAX_BYTES];
    size_t used = 0;
    long long deadline = now_ms() + silence_ms;
    for (;;) {
        long long left = deadline - now_ms();
        if (left <= 0) {
            say("wait: the agent is silent; asking again", "");
            return BROKEN;
        }
        int ready = wait_for(fd, POLLIN, left);
        if (ready < 0 && errno != EINTR) return BROKEN;
        if (ready <= 0) continue;
        ssize_t n = recv(fd, line + used, sizeof line - used, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n <= 0) return BROKEN;
        used += (size_t)n;
        char *end;
        while ((end = memchr(line, '\n', used)) != NULL) {
            size_t length = (size_t)(end - line) + 1;
            *end = '\0';
            if (end > line && end[-1] == '\r') end[-1] = '\0';
            *heard = 1;
            deadline = now_ms() + silence_ms;
            if (strcmp(line, "go") == 0) return GO;
            if (strncmp(line, "wait ", 5) == 0) say("wait: ", line + 5);
            memmove(line, line + length, used - length);
            used -= length;
        }
        if (used == sizeof line) return BROKEN; /* no line of the protocol is this long: not our agent, or a broken one */
    }
}

static int gate(const struct sockaddr_un *address, long long silence_ms) {
    long long backoff = BACKOFF_FIRST_MS;
    for (;;) {
        int fd = connect_to(address), heard = 0;
        if (fd < 0) {
            say("wait: the node's agent does not answer: ", strerror(errno));
        } else {
            if (listen_to(fd, silence_ms, &heard) == GO && !saved_meanwhile()) {
                take_leave();
                say("go: it is this trial's turn", "");
                return EXIT_GO;
            }
            close(fd);
            if (heard) backoff = BACKOFF_FIRST_MS;
        }
        wait_for(-1, 0, backoff);
        backoff = backoff * 2 > BACKOFF_LAST_MS ? BACKOFF_LAST_MS : backoff * 2;
    }
}

static int wrong(const char *what, const char *value, const char *cure) {
    put(STDERR_FILENO, "podium-gate: ");
    put(STDERR_FILENO, what);
    put(STDERR_FILENO, value);
    put(STDERR_FILENO, cure);
    put(STDERR_FILENO, "\n");
    return EXIT_USAGE;
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, &mask_while_waiting);
    sigdelset(&mask_while_waiting, SIGTERM);
    sigdelset(&mask_while_waiting, SIGINT);
    sigaction(SIGTERM, &action, NULL); /* a pid 1 without a handler would ignore these until SIGKILL */
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
        if (argc > 2) return wrong("hook takes no arguments: ", argv[2], " (see --help)");
        put(STDOUT_FILENO, hold_until_saved());
        put(STDOUT_FILENO, "\n");
        return EXIT_GO;
    }
    if (strcmp(argv[1], "gate") != 0) return wrong("unknown command: ", argv[1], " (there are: gate, hook; see --help)");
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            put(STDOUT_FILENO, HELP);
            return EXIT_GO;
        }
        if (i + 1 >= argc) return wrong("option without its value: ", argv[i], " (see --help)");
        if (strcmp(argv[i], "--socket") == 0) {
            path = argv[++i];
        } else if (strcmp(argv[i], "--silence") == 0) {
            char *end;
            silence_ms = strtoll(argv[++i], &end, 10);
            if (*end != '\0' || silence_ms <= 0)
                return wrong("--silence: ", argv[i], " is not a number of milliseconds above 0");
        } else {
            return wrong("unknown option: ", argv[i], " (see --help)");
        }
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return wrong("--socket: ", path, " is too long for a unix socket (107 bytes); use a shorter path");
    strcpy(address.sun_path, path);
    catch_signals();
    return gate(&address, silence_ms);
}

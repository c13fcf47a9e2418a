/*
 * The preStop hook: asks the trial to save before it is told to stop, and holds its SIGTERM until it has; or until a
 * script that cannot be asked, and has only just begun, has set its handler.
 *
 * The kubelet runs it in the trial's container, as the trial's user, within the pod's grace period. It never fails: a
 * deletion must not depend on it.
 */
#ifndef PODIUM_HOOK_H
#define PODIUM_HOOK_H

/* Returns the sentence that says how it went, for the log. */
const char *hold_until_saved(void);

#endif

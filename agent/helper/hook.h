/*
 * The preStop hook: requests a checkpoint from the trial and delays its SIGTERM until the checkpoint is complete.
 *
 * If the script does not answer requests and has just started, the hook delays SIGTERM until the script handles it. The
 * kubelet runs the hook in the trial's container, as the trial's user, within the pod's grace period. The hook never
 * fails, because the deletion of a pod must not depend on it.
 */
#ifndef PODIUM_HOOK_H
#define PODIUM_HOOK_H

/* Returns the result as a line for the log. */
const char *wait_for_checkpoint(void);

#endif

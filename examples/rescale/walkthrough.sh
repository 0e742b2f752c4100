#!/bin/sh
# Scale rescalebasic up and down while it runs, and show its Tasks after each step. It needs a kubectl for a cluster with the
# controller. It fails if a step differs.
set -eu
cd "$(dirname "$0")"

say() { printf '\n# %s\n' "$*"; }

# Each Task: its index, the first part of its instanceUID (which identifies the Task), its state, and whether it is leaving.
tasks() {
    kubectl get framework rescalebasic -o jsonpath='{range .status.attemptStatus.taskRoleStatuses[0].taskStatuses[*]}{.index} {.instanceUID} {.state} {.deletionPending} code={.attemptStatus.completionStatus.code}{"\n"}{end}' |
        sed -E 's/-[0-9a-f-]{27} / /; s/ false / /; s/ true / leaving /; s/ code=$//; s/^/a-/'
}

# Wait until `tasks`, lines joined by spaces, matches a pattern; then show them.
until_tasks() {
    for _ in $(seq 300); do
        # shellcheck disable=SC2254
        case "$(tasks | tr '\n' ' ')" in $1) tasks; return ;; esac
        sleep 0.1
    done
    echo "walkthrough.sh: never seen: $1" >&2
    tasks >&2
    return 1
}

# Patch taskNumber, together with minFailedTaskCount if there is a second argument.
scale() {
    policy=${2:+", {\"op\": \"replace\", \"path\": \"/spec/taskRoles/0/frameworkAttemptCompletionPolicy/minFailedTaskCount\", \"value\": $2}"}
    kubectl patch framework rescalebasic --type=json -p "[{\"op\": \"replace\", \"path\": \"/spec/taskRoles/0/taskNumber\", \"value\": $1}${policy-}]" > /dev/null
}

running='AttemptRunning'
kubectl create -f rescalebasic.yaml
until_tasks "a-0*$running a-1*$running a-2*$running a-3*$running "

say "Delete the Pods of a-2 and a-3: both Tasks have failed (-101, the Pod was deleted)."
kubectl delete pod rescalebasic-a-2 rescalebasic-a-3 --wait=false
until_tasks "*a-2*Completed*-101 a-3*Completed*-101 "

say "4 -> 2, and minFailedTaskCount 4 -> 2 in the same patch: they disappear at once, and the attempt continues."
scale 2 2
until_tasks "a-0*$running a-1*$running "

say "2 -> 4: their indexes get new Tasks."
scale 4 4
until_tasks "a-0*$running a-1*$running a-2*$running a-3*$running "

say "Delete the Pod of a-2; when it is Completed, 4 -> 2: both leave, but a-3 takes a while ..."
kubectl delete pod rescalebasic-a-2 --wait=false
until_tasks "*a-2*Completed*-101 a-3*$running "
scale 2
until_tasks "*a-3*leaving*-230 "

say "... and before it is gone, 2 -> 3: a-2 returns at once, as a new Task; a-3 is still leaving."
scale 3
until_tasks "*a-2*$running a-3*leaving*-230 "
say "... a-3 is gone."
until_tasks "a-0*$running a-1*$running a-2*$running "

say "3 -> 4, and delete the Pod of a-2 again."
scale 4
until_tasks "*a-3*$running "
kubectl delete pod rescalebasic-a-2 --wait=false
until_tasks "*a-2*Completed*-101 a-3*$running "

say "4 -> 2, then 2 -> 5 at once: a-2 is replaced at once, a-4 is added, a-3 is replaced when its old Pod is gone."
scale 2
until_tasks "*a-3*leaving*-230 "
scale 5
until_tasks "*a-2*$running a-3*leaving*-230 a-4*$running "
until_tasks "a-0*$running a-1*$running a-2*$running a-3*$running a-4*$running "

say "It is still the first attempt, and a-0 and a-1 never noticed."
kubectl get framework rescalebasic -o jsonpath='attempt {.status.attemptStatus.id}, {.status.state}{"\n"}'
kubectl delete framework rescalebasic

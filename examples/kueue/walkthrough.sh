#!/bin/sh
# Two Frameworks compete for quota: resumed has all of it, urgent preempts it, and resumed continues where it was. It needs a kubectl for
# a cluster with the controller and the queue `team-a` with one CPU: `frameworkcontroller local up --queue cpu=1`, or Kueue with
# admin/queues.yaml. It fails if a step differs.
set -eu
cd "$(dirname "$0")"

say() { printf '\n# %s\n' "$*"; }

# Wait until a command prints a line that matches the pattern.
until_prints() {
    pattern=$1
    shift
    for _ in $(seq 600); do
        "$@" 2>/dev/null | grep -q "$pattern" && return
        sleep 0.2
    done
    echo "walkthrough.sh: $* never printed: $pattern" >&2
    "$@" >&2
    return 1
}

condition() {
    kubectl get framework "$1" -o jsonpath="{range .status.conditions[?(@.type==\"$2\")]}{.status}: {.message}{\"\\n\"}{end}"
}

say "Four workers with 250m CPU each take the whole quota."
kubectl create -f resumed.yaml
kubectl wait --for=condition=Admitted framework/resumed --timeout=60s
until_prints 'begins after step 0' kubectl logs resumed-worker-0
kubectl get workloads.kueue.x-k8s.io
sleep 3

say "Two workers of higher priority arrive. The others save their work and end; only then is their quota given away."
kubectl create -f urgent.yaml
kubectl wait --for=condition=Admitted framework/urgent --timeout=120s
test -z "$(kubectl get pods -l FC_FRAMEWORK_NAME=resumed -o name)"
kubectl get workloads.kueue.x-k8s.io

say "Why resumed waits:"
until_prints 'insufficient unused quota for cpu' condition resumed QuotaReserved
condition resumed QuotaReserved

say "When urgent is done, resumed is admitted once more, and continues."
kubectl wait --for=condition=Succeeded framework/urgent --timeout=120s
until_prints 'attempt 1 begins after step [1-9]' kubectl logs resumed-worker-0
kubectl logs resumed-worker-0
kubectl get workloads.kueue.x-k8s.io
kubectl wait --for=condition=Succeeded framework/resumed --timeout=120s

say "It was retried once, and that does not count."
retries=$(kubectl get framework resumed -o jsonpath='{.status.retryPolicyStatus.totalRetriedCount} retry, {.status.retryPolicyStatus.accountableRetriedCount} counted')
echo "$retries"
test "$retries" = "1 retry, 0 counted"
kubectl delete framework resumed urgent

# Sourced by the containers of the plays. Writes a line a second into a file of this container in the folder that all nodes share.
# Each line: seconds since the machine's start, and a word.
file=/witness/$FC_TASK_ATTEMPT_INSTANCE_UID.${CONTAINER:-main}

line() {
    read -r now _ </proc/uptime
    echo "$now $1" >>"$file"
}

hold() { # until a signal's trap ends it. Traps are set before: who waits for this word knows that they are.
    line holds
    while true; do
        sleep 1000 &
        wait $!
    done
}

until_there() { # FILE: until a play, or another container, has made it in the shared folder
    until [ -e "/witness/$1" ]; do sleep 1; done
}

checkpoint() { # SECONDS CODE: as an application that saves its state when it is asked to end
    line asked
    sleep "$1"
    line saved
    exit "$2"
}

echo "$FC_FRAMEWORK_NAMESPACE $FC_FRAMEWORK_NAME $FC_FRAMEWORK_UID $FC_FRAMEWORK_ATTEMPT_ID $FC_POD_NAME $FC_TASK_UID $FC_TASK_ATTEMPT_ID $FC_TASK_ATTEMPT_INSTANCE_UID" >>"$file"
line begins
while sleep 1; do line runs; done &

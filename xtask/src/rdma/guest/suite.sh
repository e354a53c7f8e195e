# Runs each line of the plan in a process of its own: what it is, its program, its limit in seconds
# and the case of a test, or the name and the arguments of a run. File 3 leads to the host, a word
# and its text a line (results.rs).
# Where PROGRAMS, PLAN and SCRATCH are not set, this is a machine, and what harms it is put right.

programs=${PROGRAMS:-/programs} plan=${PLAN:-/plan} scratch=${SCRATCH:-/tmp}
counters=/sys/class/infiniband/$RDMA_VM_DEV/ports/1/hw_counters

clock() { cut -d ' ' -f 1 /proc/uptime; }

# How often a receiver was not ready, by the names of soft-RoCE and of adapters.
not_ready() {
    # What was read a moment ago would be said again otherwise.
    { echo 0 >"$counters/lifespan"; } 2>/dev/null
    sum=0
    for name in send_rnr_err rcvd_rnr_err out_of_buffer rnr_nak_retry_err; do
        sum=$((sum + $(cat "$counters/$name" 2>/dev/null || echo 0)))
    done
    echo $sum
}

# Both machines of a pair begin a case together: each waits for the other to be there.
meet() {
    case ${RDMA_VM_ROLE:-} in
        a) nc -l -p 7000 </dev/null >/dev/null ;;
        b) until nc -w 1 "$RDMA_VM_PEER" 7000 </dev/null >/dev/null 2>&1; do :; done ;;
    esac
}

# A test that harms the network puts it back; where it died before it could, this does.
mend() {
    [ -n "${RDMA_VM_NETDEV:-}" ] || return 0
    tc qdisc del dev "$RDMA_VM_NETDEV" root 2>/dev/null
    case $case in device::*) rdma link delete "$RDMA_VM_DEV" ;; esac
    ip link set "$RDMA_VM_NETDEV" up
    [ -e "/sys/class/infiniband/$RDMA_VM_DEV" ] ||
        rdma link add "$RDMA_VM_DEV" type rxe netdev "$RDMA_VM_NETDEV"
}

# Hands the files of results to the host, line by line.
hand_out() {
    for file in "$results"/*.json "$results"/*/*.svg; do
        [ -e "$file" ] && sed "s|^|file ${file#"$results"/} |" "$file" >&3
    done
    rm -r "$results"
}

number=0
while read -r kind program limit case; do
    meet
    before=$(not_ready)
    echo "start $number $(clock)" >&3
    : >"$scratch/figures"
    case $kind in
        bench)
            timeout -s KILL "$limit" "$programs/$program" \
                >"$scratch/figures" 2>"$scratch/output" </dev/null
            ;;
        run)
            results=$scratch/results name=${case%% *}
            mkdir -p "$results"
            # shellcheck disable=SC2086 # the rest of the case is a list of arguments
            timeout -s KILL "$limit" "$programs/$program" ${case#* } --host "$RDMA_VM_ADDR" \
                --json "$results/$name.json" --svg "$results/$name" \
                >"$scratch/output" 2>&1 </dev/null
            ;;
        *)
            timeout -s KILL "$limit" "$programs/$program" --exact "$case" --include-ignored \
                --nocapture --test-threads 1 >"$scratch/output" 2>&1 </dev/null
            ;;
    esac
    code=$?
    [ "$kind" = run ] && hand_out
    sed 's/^/figure /' "$scratch/figures" >&3
    tail -n 200 "$scratch/output" | sed 's/^/output /' >&3
    mend
    echo "done $number $code $(clock) $(($(not_ready) - before))" >&3
    number=$((number + 1))
done <"$plan"
for name in "$counters"/*; do
    [ -e "$name" ] && echo "counter ${name##*/} $(cat "$name")" >&3
done
# A device without counters is none that failed: who reads this script looks at its status.
:

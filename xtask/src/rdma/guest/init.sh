#!/bin/busybox sh
# The first process of a machine: brings a soft-RoCE device up, runs the suite, ends the machine.
# What it says goes to the host by the second serial port, a word and its text a line (results.rs
# reads them). RDMA_VM_ROLE and the like are in the kernel's command line, which hands them to us.
/bin/busybox --install -s /sbin
export PATH=/bin:/sbin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /tmp
mount -t tmpfs tmp /dev/shm
mount -t tmpfs tmp /tmp
stty -F /dev/ttyS1 raw
exec 3>/dev/ttyS1 </dev/null

# Says how it went and ends: the exit device makes the machine exit with 2 * 0 + 1.
leave() {
    dmesg | grep -E 'BUG:|WARNING:|Oops|refcount_t' | sed 's/^/kernel /' >&3
    echo "end $1" >&3
    printf '\0' | dd of=/dev/port bs=1 seek=244 2>/dev/null
    poweroff -f
}

# The shell would prefer its own tools of these names, which know less.
ip() { /bin/ip "$@"; }
tc() { /bin/tc "$@"; }

load() {
    while read -r module; do
        insmod "/modules/$module" || leave "module $module does not load"
    done <"/modules/$1"
}

load rdma
load loss
ulimit -l unlimited
ip link set lo up
case ${RDMA_VM_ROLE:-} in
    a | b)
        load cable
        until RDMA_VM_NETDEV=$(ls /sys/class/net | grep -v '^lo$'); do :; done
        [ "$RDMA_VM_ROLE" = a ] && RDMA_VM_ADDR=10.0.0.1 RDMA_VM_PEER=10.0.0.2
        [ "$RDMA_VM_ROLE" = b ] && RDMA_VM_ADDR=10.0.0.2 RDMA_VM_PEER=10.0.0.1
        ;;
    *)
        load veth
        RDMA_VM_NETDEV=veth0 RDMA_VM_ADDR=10.0.0.1 RDMA_VM_PEER=
        ip link add veth0 type veth peer name veth1
        ip link set veth1 mtu 4200 up
        ;;
esac
export RDMA_VM=1 RDMA_VM_DEV=rxe0 RDMA_VM_NETDEV RDMA_VM_ADDR RDMA_VM_PEER
ip addr add "$RDMA_VM_ADDR/24" dev "$RDMA_VM_NETDEV"
ip link set "$RDMA_VM_NETDEV" mtu 4200 up
rdma link add "$RDMA_VM_DEV" type rxe netdev "$RDMA_VM_NETDEV" || leave "no RDMA device"
. /suite.sh
leave well

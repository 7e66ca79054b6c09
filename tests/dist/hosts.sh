# Two hosts that are network namespaces of this machine, joined by a bridge: Open MPI starts its daemons in them and goes by TCP. Sourced by
# tests/dist.sh; needs root and iproute2.

ns=ct$$
net=10.$((77 + $$ % 100)).$(($$ / 100 % 256))
take_hosts_down() {
    ip link del "br$ns" 2>/dev/null
    ip netns del "${ns}a" 2>/dev/null
    ip netns del "${ns}b" 2>/dev/null
}
put_hosts_up() {
    local host i=2
    ip link add "br$ns" type bridge && ip addr add "$net.1/24" dev "br$ns" && ip link set "br$ns" up || return 1
    for host in a b; do
        ip netns add "$ns$host" && ip link add "$ns$host" type veth peer name eth0 netns "$ns$host" &&
            ip link set "$ns$host" master "br$ns" up && ip -n "$ns$host" addr add "$net.$i/24" dev eth0 &&
            ip -n "$ns$host" link set eth0 up && ip -n "$ns$host" link set lo up || return 1
        i=$((i + 1))
    done
    # HOST COMMAND...: what stands in for ssh. Each host has its own name and folder for temporary files, as machines do: the launcher's daemons
    # keep their session under both, and two that start in the same one are in each other's way.
    mkdir -p tmp.a tmp.b
    cat >agent <<END
#!/bin/sh
case \$1 in $net.2) host=a ;; *) host=b ;; esac
shift
export TMPDIR=$PWD/tmp.\$host
exec ip netns exec $ns\$host unshare --uts sh -c "hostname $ns\$host && \$*"
END
    chmod +x agent
}
by_two_hosts() {
    env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun.openmpi --mca plm_rsh_agent "$PWD/agent" --mca plm_rsh_no_tree_spawn 1 \
        --mca oob_tcp_if_include "$net.0/24" --mca btl tcp,self --mca btl_tcp_if_include "$net.0/24" --bind-to none --quiet -x CT_BACKEND_PATH -x CT_DIST_TIMEOUT \
        -H "$net.2:2,$net.3:2" -n 4 "$tests/dist_$1" >hosts.txt 2>&1
    cat hosts.txt
    grep -q '^4 ranks' hosts.txt && [ "$(cat "/sys/class/net/${ns}a/statistics/rx_bytes")" -gt 50000 ] # it went over the wire
}
host_checks() {
    if [ "$(id -u)" -ne 0 ] || ! command -v ip >/dev/null || ! command -v mpirun.openmpi >/dev/null; then
        skip "two hosts" "root, iproute2 and Open MPI are needed"
    elif ! put_hosts_up >hosts.txt 2>&1; then
        skip "two hosts" "no network namespaces here: $(tail -n 1 hosts.txt)"
    else
        check "two hosts: data parallel training" by_two_hosts parallel
        check "two hosts: sharded parameters" by_two_hosts sharded
    fi
    take_hosts_down
}

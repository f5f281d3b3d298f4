#!/usr/bin/env bash
# A real Slurm on one Debian machine, for development and tests: `dev_cluster.sh --help`.
#
# munged, MariaDB, slurmdbd, slurmctld and N slurmd run in one folder, on free ports, with their own key,
# database and sockets. They do not disturb an installed Slurm, MariaDB or munge, and several dev
# clusters can run side by side. A client needs only SLURM_CONF.
set -euo pipefail

readonly PROGRAM=${0##*/}
readonly MARKER_NAME=.sad_hpc_dev_cluster # holds the number of nodes; no folder without it is removed
readonly HOSTS_FILE=/etc/hosts
readonly START_SECONDS=60 # timeout of each step; all together take about 4 s
readonly STOP_SECONDS=10  # then SIGKILL: nothing in the folder is kept

usage() {
    cat <<HELP
usage: $PROGRAM up [N] | down | status | --help

  eval "\$(slurm/$PROGRAM up 4)"   start a Slurm with 4 nodes (the default) and point this shell at it
  slurm/$PROGRAM down              end it and remove its folder
  slurm/$PROGRAM status            every daemon with its pid, and sinfo; exit status 1 if not all are alive

'up' prints one line on standard output, 'export SLURM_CONF=...'; when the cluster is up it only prints it again.

environment:
  SAD_HPC_DEV_CLUSTER   the cluster's folder (default: .dev_cluster in the repository)
  SAD_HPC_DEV_CPUS      CPUs that each node declares (default 1; may exceed the machine's)
  SAD_HPC_DEV_FAR       "HERE THERE FILE": the last node, to which jobs go first, is at the address THERE in the
                        network namespace FILE, and all else at HERE in that of this shell (only this machine can connect)

Exit status 3: this machine lacks what is needed, root on Debian or Ubuntu with
apt-get install slurm-wlm slurmdbd mariadb-server munge
HELP
}

say() { printf '%s: %s\n' "$PROGRAM" "$*" >&2; }
die() { say "$@"; exit 1; }
cannot_run_here() { say "$@"; exit 3; } # the tests skip on this status and no other

# ---------------------------------------------------------------- folder and addresses

# Sets FOLDER and the paths inside it.
locate_folder() {
    local repository
    repository=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
    FOLDER=$(realpath -m -- "${SAD_HPC_DEV_CLUSTER:-$repository/.dev_cluster}")
    # slurm.conf cannot quote values.
    [[ $FOLDER =~ ^/[A-Za-z0-9._/-]+$ ]] || die "folder '$FOLDER': only letters, digits and ._/- work in slurm.conf"
    # The longest socket path is a job step's, node10/node10_1234567.4294967292; the limit is 107 bytes.
    ((${#FOLDER} <= 72)) || die "folder '$FOLDER' has ${#FOLDER} characters; unix sockets allow 72 here." \
        "Set SAD_HPC_DEV_CLUSTER to a shorter one, /tmp/dev_cluster for example."
    MARKER=$FOLDER/$MARKER_NAME
    CONF=$FOLDER/slurm.conf
    HOSTS_TAG="# sad_hpc dev_cluster $FOLDER"
}

# Sets THERE and HERE, the addresses of the last node and of all else; ENTER_FAR, the command that starts a program at
# the last node; OTHERS_WEIGHT, which sends jobs there first; and PRIVACY, a line that lets only this machine connect.
locate_nodes() {
    local file
    HERE=127.0.0.1 THERE=127.0.0.1 ENTER_FAR=() OTHERS_WEIGHT=1
    PRIVACY=CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
    if [[ -n ${SAD_HPC_DEV_FAR:-} ]]; then
        read -r HERE THERE file <<<"$SAD_HPC_DEV_FAR"
        ENTER_FAR=(nsenter "--net=$file") OTHERS_WEIGHT=2
        PRIVACY="# The namespaces keep other machines out."
    fi
}

require_root_and_packages() {
    local program
    ((EUID == 0)) ||
        cannot_run_here "must be run as root: slurmd starts jobs as other users, and node names go to $HOSTS_FILE"
    for program in slurmctld slurmd slurmdbd munged mungekey mariadbd mariadb-install-db sinfo sacct sacctmgr; do
        command -v "$program" >/dev/null ||
            cannot_run_here "$program is missing: apt-get install slurm-wlm slurmdbd mariadb-server munge"
    done
}

# Allows one `up` or `down` at a time on this machine, since they choose ports and edit the hosts file.
lock_machine() {
    exec {LOCK}<"$HOSTS_FILE"
    flock -w 120 "$LOCK" || die "another $PROGRAM has been starting or ending for two minutes"
}

# ---------------------------------------------------------------- daemons

# launch NAME COMMAND...: starts a detached daemon in its own session and records its pid.
# All descriptors are closed, since an open one would block the caller's $(...) until the daemon ends.
# The environment is new, without the caller's SLURM_*; DEV_CLUSTER_DAEMON identifies the process.
launch() {
    local name=$1
    shift
    (
        for descriptor in "/proc/$BASHPID/fd/"*; do
            descriptor=${descriptor##*/}
            # 255 is bash's own handle on this script and closes by itself.
            if ((descriptor > 2 && descriptor != 255)); then exec {descriptor}>&-; fi
        done
        cd /
        # Background jobs of a script ignore SIGINT; --default-signal keeps the daemons' jobs from inheriting that.
        exec setsid env -i --default-signal PATH="$PATH" HOME="$HOME" LANG=C.UTF-8 SLURM_CONF="$CONF" \
            MYSQL_UNIX_PORT="$FOLDER/mariadb.socket" DEV_CLUSTER_DAEMON="$FOLDER:$name" "$@"
    ) </dev/null >"$FOLDER/log/$name.log" 2>&1 &
    echo $! >"$FOLDER/pid/$name"
    # alive() works only once the process has its new environment.
    while kill -0 $! 2>/dev/null && ! alive "$name"; do sleep 0.02; done
}

daemon_names() { # in the order of their start
    local number
    printf '%s\n' munged mariadbd slurmdbd slurmctld
    for ((number = 1; number <= $(<"$MARKER"); number++)); do echo "node$number"; done
}

# alive NAME: tests whether the recorded pid is still that daemon, not a later process with the same pid.
alive() {
    local pid
    pid=$(cat -- "$FOLDER/pid/$1" 2>/dev/null) && has_variable "$pid" "DEV_CLUSTER_DAEMON=$FOLDER:$1"
}

has_variable() { grep -qzxF -- "$2" "/proc/$1/environ" 2>/dev/null; }

# wait_for NAME COMMAND...: waits until COMMAND succeeds; fails early if daemon NAME ends.
wait_for() {
    local name=$1 deadline=$((SECONDS + START_SECONDS))
    shift
    until "$@" >/dev/null 2>&1; do
        alive "$name" || die "$name ended while starting"
        ((SECONDS < deadline)) || die "$name: '$*' did not succeed within $START_SECONDS s"
        sleep 0.1
    done
}

# stop NAME: ends a daemon by SIGTERM, then by SIGKILL.
stop() {
    local name=$1 deadline=$((SECONDS + STOP_SECONDS)) signal
    for signal in TERM KILL; do
        if ! alive "$name"; then return 0; fi
        kill "-$signal" "$(<"$FOLDER/pid/$name")" 2>/dev/null || true
        while alive "$name" && ((SECONDS < deadline)); do sleep 0.1; done
    done
}

# Prints the pids that the slurmds leave: slurmstepd, which inherits DEV_CLUSTER_DAEMON, and processes of jobs, which
# have SLURMD_NODENAME and this SLURM_CONF. A shell with this SLURM_CONF has no SLURMD_NODENAME and is not listed.
leftover_pids() {
    local directory pid
    for directory in /proc/[0-9]*; do
        pid=${directory#/proc/}
        if ((pid == $$ || pid == BASHPID)); then continue; fi
        if grep -qzE "^DEV_CLUSTER_DAEMON=${FOLDER//./\\.}:" "$directory/environ" 2>/dev/null ||
            { has_variable "$pid" "SLURM_CONF=$CONF" && grep -qz '^SLURMD_NODENAME=' "$directory/environ"; }; then
            echo "$pid"
        fi
    done 2>/dev/null
}

stop_everything() {
    local name pid
    # slurmctld first, so that it does not restart jobs on other nodes; the others in reverse order.
    stop slurmctld
    for name in $(daemon_names | tac); do stop "$name"; done
    # Several passes, since a process may start another one during a pass.
    for _ in 1 2 3; do
        for pid in $(leftover_pids); do kill -KILL "$pid" 2>/dev/null || true; done
    done
    forget_node_names
}

# ---------------------------------------------------------------- ports and names

listening() { # PORT
    local hex
    hex=$(printf '%04X' "$1")
    # State 0A is LISTEN. No pipe: with pipefail, the early end of grep -q would fail it.
    grep -qsE "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:[0-9A-F]+ 0A" /proc/net/tcp /proc/net/tcp6
}

# Sets FIRST_PORT, the first of COUNT adjacent free ports below the kernel's range for outgoing connections.
choose_ports() { # COUNT
    local count=$1 offset attempt
    for ((attempt = 0; attempt < 100; attempt++)); do
        FIRST_PORT=$((10000 + RANDOM % 20000))
        for ((offset = 0; offset < count; offset++)); do
            if listening $((FIRST_PORT + offset)); then continue 2; fi
        done
        return
    done
    die "found no $count adjacent free ports between 10000 and 30000"
}

# address_of NUMBER COUNT: prints the address of a node.
address_of() { if (($1 == $2)); then echo "$THERE"; else echo "$HERE"; fi; }

# Adds node names to the hosts file, since jobs use them as addresses (such as torch's MASTER_ADDR). Lines of other dev
# clusters do not count, since they are removed with those clusters. The file is rewritten in place, since in a
# container it may be a mount.
add_node_names() { # COUNT
    local number name others address
    others=$(grep -v '# sad_hpc dev_cluster ' "$HOSTS_FILE" | sed 's/#.*//')
    if [[ -n $(tail -c 1 "$HOSTS_FILE") ]]; then echo >>"$HOSTS_FILE"; fi
    for ((number = 1; number <= $1; number++)); do
        name=node$number
        address=$(address_of "$number" "$1")
        grep -qwF "$name" <<<"$others" || echo "$address $name $HOSTS_TAG" >>"$HOSTS_FILE"
        [[ $(getent ahostsv4 "$name") == "${address%%.*}."* ]] || die "$name does not resolve to $address; see $HOSTS_FILE"
    done
}

forget_node_names() {
    local kept
    kept=$(awk -v tag="$HOSTS_TAG" 'substr($0, length($0) - length(tag) + 1) != tag' "$HOSTS_FILE")
    if [[ $kept != "$(<"$HOSTS_FILE")" ]]; then printf '%s\n' "$kept" >"$HOSTS_FILE"; fi
}

# ---------------------------------------------------------------- configuration

# Writes slurm.conf and slurmdbd.conf. Ports: FIRST_PORT for slurmctld, the next for slurmdbd, then one for each node.
write_configuration() { # COUNT
    local count=$1 number memory
    memory=$(awk -v count="$count" '/^MemTotal:/ { print int($2 / 1024 / count) }' /proc/meminfo)
    cat >"$CONF" <<CONFIG
ClusterName=sad_hpc
SlurmctldHost=localhost($HERE)
SlurmctldPort=$FIRST_PORT
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$FOLDER/state
SlurmdSpoolDir=$FOLDER/%n
SlurmctldPidFile=$FOLDER/pid/slurmctld.own
SlurmdPidFile=$FOLDER/pid/%n.own
MailProg=/bin/true
$PRIVACY
# A requeued job starts again once its old credential has expired: 7 to 20 s with this setting, 2 minutes without.
AuthType=auth/munge
AuthInfo=socket=$FOLDER/munge.socket,cred_expire=5
# Plugins that need neither systemd nor cgroups.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
# Without a memory cgroup, slurmstepd ends a job that uses more memory than requested.
JobAcctGatherParams=OverMemoryKill
MpiDefault=none
# A node may declare more or fewer resources than the hardware has.
SlurmdParameters=config_overrides
# Small jobs and dependencies start within a second or two.
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
# Without a default, a job that requests no memory gets all memory of its node.
DefMemPerCPU=$((memory / CPUS))
# A job ends if its dependency has failed.
DependencyParameters=kill_invalid_depend
# A lost node is detected after 10 s, its jobs restart on other nodes, and it may return.
SlurmdTimeout=10
ReturnToService=2
JobRequeue=1
KillWait=10
# squeue and dependencies remember an ended job for an hour.
MinJobAge=3600
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=$((FIRST_PORT + 1))
# The munge socket of the connection to slurmdbd (not a password); AuthInfo does not apply to it.
AccountingStoragePass=$FOLDER/munge.socket
CONFIG
    for ((number = 1; number <= count; number++)); do
        echo "NodeName=node$number NodeHostname=localhost NodeAddr=$(address_of "$number" "$count")" \
            "Port=$((FIRST_PORT + 1 + number)) CPUs=$CPUS RealMemory=$memory State=UNKNOWN" \
            "Weight=$((number == count ? 1 : OTHERS_WEIGHT))"
    done >>"$CONF"
    cat >>"$CONF" <<CONFIG
# Jobs of the second partition preempt those of the first, with a grace time of 30 s.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
CONFIG
    # slurmdbd reads this file beside slurm.conf and requires it to be private. With "localhost" it connects to MariaDB
    # by the socket in MYSQL_UNIX_PORT, where root needs no password; the database does not listen on the network.
    (umask 077 && cat >"$FOLDER/slurmdbd.conf") <<CONFIG
DbdHost=localhost
DbdPort=$((FIRST_PORT + 1))
$PRIVACY
SlurmUser=root
PidFile=$FOLDER/pid/slurmdbd.own
AuthType=auth/munge
AuthInfo=socket=$FOLDER/munge.socket
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
CONFIG
}

# ---------------------------------------------------------------- commands

start_daemons() { # COUNT
    local count=$1 number database command
    # --force: munged refuses a folder that only root may enter, such as one of mktemp.
    mungekey --create --keyfile="$FOLDER/munge.key"
    launch munged "$(command -v munged)" --foreground --force --key-file="$FOLDER/munge.key" \
        --socket="$FOLDER/munge.socket" --pid-file="$FOLDER/pid/munged.own" --seed-file="$FOLDER/munge.seed"
    database=(--no-defaults --user=root --datadir="$FOLDER/database" --innodb-log-file-size=16M)
    mariadb-install-db "${database[@]}" --auth-root-authentication-method=socket --skip-test-db \
        >"$FOLDER/log/mariadb-install-db.log" 2>&1 || die "could not create the accounting database"
    # nosync trades durability for speed; slurmdbd requires the long lock timeout.
    launch mariadbd "$(command -v mariadbd)" "${database[@]}" --skip-networking --socket="$FOLDER/mariadb.socket" \
        --pid-file="$FOLDER/pid/mariadbd.own" --innodb-flush-method=nosync --innodb-lock-wait-timeout=900
    wait_for munged test -S "$FOLDER/munge.socket"
    wait_for mariadbd test -S "$FOLDER/mariadb.socket"
    launch slurmdbd "$(command -v slurmdbd)" -D
    wait_for slurmdbd listening $((FIRST_PORT + 1))
    # Before slurmctld, which ends if the database does not know its cluster.
    add_accounts >"$FOLDER/log/sacctmgr.log" 2>&1 || die "could not add the cluster to the accounting database"
    launch slurmctld "$(command -v slurmctld)" -D -f "$CONF"
    wait_for slurmctld listening "$FIRST_PORT"
    for ((number = 1; number <= count; number++)); do
        command=("$(command -v slurmd)" -D -N "node$number" -f "$CONF")
        if ((number == count)); then command=("${ENTER_FAR[@]}" "${command[@]}"); fi
        launch "node$number" "${command[@]}"
    done
    wait_for slurmctld all_idle "$count"
    wait_for slurmdbd sacct --noheader --allocations
}

add_accounts() {
    sacctmgr -i add cluster sad_hpc && sacctmgr -i add account sad_hpc &&
        sacctmgr -i add user root account=sad_hpc defaultaccount=sad_hpc
}

all_idle() { [[ $(sinfo --noheader --Node --partition=debug --format=%T | grep -cx idle) == "$1" ]]; } # COUNT

report_failure() {
    local log
    # Stop all daemons, despite further errors and signals.
    set +e
    trap '' INT TERM HUP
    exec 2>&"$MESSAGES" # a signal may have arrived during a command whose output goes to a log
    for log in "$FOLDER"/log/*.log; do
        if [[ -s $log ]]; then printf -- '--- %s\n%s\n' "$log" "$(tail -n 8 "$log")" >&2; fi
    done
    stop_everything
    say "the start failed; all daemons are stopped, the logs are in $FOLDER/log"
}

up() { # COUNT
    local count=$1 name living=() dead=()
    if [[ -e $MARKER ]]; then
        for name in $(daemon_names); do
            if alive "$name"; then living+=("$name"); else dead+=("$name"); fi
        done
        if ((${#living[@]} > 0)); then
            (($(<"$MARKER") == count)) || die "already up with $(<"$MARKER") nodes in $FOLDER, not $count: '$PROGRAM down' first"
            ((${#dead[@]} == 0)) || die "partly up in $FOLDER, not alive: ${dead[*]}; '$PROGRAM down' first"
            echo "export SLURM_CONF=$CONF"
            return
        fi
        down # nothing is alive after a failed start or a restart of the machine
    elif [[ -n $(ls -A -- "$FOLDER" 2>/dev/null) ]]; then
        die "'$FOLDER' is not empty and not a dev cluster: set SAD_HPC_DEV_CLUSTER to another folder"
    fi
    mkdir -p -- "$FOLDER"
    echo "$count" >"$MARKER"
    mkdir -- "$FOLDER"/{log,pid,state,database}
    exec {MESSAGES}>&2
    trap report_failure EXIT
    trap 'exit 130' INT TERM HUP
    choose_ports $((count + 2))
    add_node_names "$count"
    write_configuration "$count"
    start_daemons "$count"
    trap - EXIT INT TERM HUP
    say "$count nodes are idle after $SECONDS s, logs in $FOLDER/log"
    echo "export SLURM_CONF=$CONF"
}

down() {
    [[ -e $MARKER ]] || { say "nothing is up in $FOLDER" && return; }
    stop_everything
    rm -rf -- "$FOLDER"
    say "ended, $FOLDER removed"
}

status() {
    local name word result=0
    [[ -e $MARKER ]] || { echo "nothing is up in $FOLDER" && return 1; }
    for name in $(daemon_names); do
        word=alive
        alive "$name" || { word='NOT alive' && result=1; }
        printf '%-10s %8s %s\n' "$name" "$(cat -- "$FOLDER/pid/$name" 2>/dev/null || echo -)" "$word"
    done
    if alive slurmctld; then sinfo; fi
    return "$result"
}

main() {
    local command=${1:-} count=${2:-4}
    case $command in
        up) (($# <= 2)) || die "up takes one number, see --help" ;;
        down | status) (($# == 1)) || die "$command takes no argument, see --help" ;;
        -h | --help | help) usage && return ;;
        *) usage >&2 && return 2 ;;
    esac
    [[ $count =~ ^[1-9][0-9]?$ ]] || die "number of nodes '$count': a number from 1 to 99 is needed"
    CPUS=${SAD_HPC_DEV_CPUS:-1}
    [[ $CPUS =~ ^[1-9][0-9]*$ ]] || die "SAD_HPC_DEV_CPUS='$CPUS': a number from 1 is needed"
    PATH=$PATH:/usr/sbin:/sbin
    locate_folder
    locate_nodes
    require_root_and_packages
    # Settings of a job or another cluster would affect the Slurm commands below.
    local variable
    for variable in "${!SLURM_@}" "${!SINFO_@}" "${!SACCT_@}"; do unset "$variable"; done
    export SLURM_CONF=$CONF
    if [[ $command != status ]]; then lock_machine; fi
    "$command" "$count" # up, down or status
}

main "$@"

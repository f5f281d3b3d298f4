#!/bin/bash
# Make the root file system of containers/sad_hpc.def in a folder without Apptainer: the definition's
# base by debootstrap, then its %files and its %post.  Needs Debian and root.
# From the repository's root:
#
#   containers/unpack.sh FOLDER [PATH ...]
#   SAD_HPC_IMAGE=FOLDER python -m pytest tests/cluster/test_container.py
#
# usage: unpack.sh FOLDER [PATH ...]
# PATHs of this machine (of pip's settings, or of certificates) are mounted inside while it works,
# read-only, since packages that are installed there write to /etc/ssl/certs and the like.
set -euo pipefail

root=$(realpath -m -- "${1:?usage: unpack.sh FOLDER [PATH ...]}")
shift
definition=containers/sad_hpc.def
[[ -f $definition ]] || { echo "run this script from the repository's root" >&2; exit 1; }

section() { awk -v name="%$1" '$1 ~ /^%/ {inside = $1 == name; next} inside && NF' "$definition"; }

release=$(awk -F'[:-]' '/^From:/ {print $3}' "$definition")
[[ -d $root/usr ]] || debootstrap --variant=minbase "${release// /}" "$root"
section files | while read -r from to; do
    mkdir -p "$root$(dirname "$to")"
    rm -rf "${root:?}$to"
    cp -r "$from" "$root$to"
done
section post >"$root/post.sh"
# Mounts end with this process.
export root
unshare --mount bash -euo pipefail -c '
    mount --make-rprivate /
    for path in /proc /dev "$@"; do
        if [[ -d $path ]]; then mkdir -p "$root$path"; else mkdir -p "$root${path%/*}" && touch "$root$path"; fi
        mount --rbind "$path" "$root$path"
    done
    for path in "$@"; do mount -o remount,bind,ro "$root$path"; done
    exec chroot "$root" bash -euo pipefail /post.sh
' bash "$@"

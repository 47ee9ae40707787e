#!/usr/bin/env bash
# Makes what a power cut needs: QEMU, a Debian kernel, an initramfs with our programs, an empty disk.
#
#   prepare.sh PROGRAMS GUEST
#
# PROGRAMS holds torture, wattkeepd and wattkeep; GUEST is made. The kernel has NVMe, ext4 and the
# serial line built in, so the initramfs needs no modules: busybox, our programs, their libraries.
set -euo pipefail

programs=$1
guest=$2
here=$(dirname "$(readlink -f "$0")")
disk_mib=256

need() { # package command...
    local package=$1 command
    shift
    for command in "$@"; do
        command -v "$command" >/dev/null || missing+=("$package")
    done
}

missing=()
need qemu-system-x86 qemu-system-x86_64
need qemu-utils qemu-img
need busybox-static busybox
need cpio cpio
need e2fsprogs mkfs.ext4 e2fsck debugfs
mkdir -p "$guest"
if [ "${#missing[@]}" -gt 0 ]; then
    echo "power-cut: installing ${missing[*]}"
    if [ "$(id -u)" -eq 0 ]; then sudo=; else sudo=sudo; fi
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ ! -e "$guest/vmlinuz" ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
    echo "power-cut: fetching $package"
    rm -rf "$guest/kernel"
    mkdir -p "$guest/kernel"
    (cd "$guest/kernel" && apt-get download -qq "$package" 2>/dev/null && dpkg -x ./*.deb .)
    cp "$guest"/kernel/boot/vmlinuz-* "$guest/vmlinuz"
    rm -rf "$guest/kernel"
fi

root=$(mktemp -d "$guest/root.XXXXXX")
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,dev,proc,sys,tmp,disk}
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
cp "$here/init.sh" "$root/init"
chmod +x "$root/init"
for program in torture wattkeepd wattkeep; do
    strip -o "$root/bin/$program" "$programs/$program"
    ldd "$programs/$program" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
done
(cd "$root" && find . | cpio --quiet -o -H newc) >"$guest/initramfs.new"
mv "$guest/initramfs.new" "$guest/initramfs"

rm -f "$guest/empty.img"
truncate -s "${disk_mib}M" "$guest/empty.img"
mkfs.ext4 -q -F "$guest/empty.img"

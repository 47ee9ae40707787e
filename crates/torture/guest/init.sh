#!/bin/sh
# The guest's only script: mounts the disk, runs the subject on the second serial line, and turns itself
# off when that ends. Its arguments are the subject's; `--lying-disk` before them makes the kernel believe that
# the disk has no volatile cache, so that no flush is ever sent.
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
exec </dev/ttyS1 >/dev/ttyS1
busybox stty -F /dev/ttyS1 raw -echo
echo booted
if [ "$1" = --lying-disk ]; then
    shift
    echo 'write through' >/sys/block/nvme0n1/queue/write_cache
fi
if busybox mount -t ext4 /dev/nvme0n1 /disk; then
    /bin/torture subject /disk/store "$@" 2>&1
    echo "ended $?"
else
    echo 'wrong the file system does not mount'
fi
busybox sleep 1
busybox poweroff -f

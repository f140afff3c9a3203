#!/bin/sh
# The guest's first process, made by kerninst-lab.
# Serial ports: ttyS0 kernel messages, ttyS1 the command's output (or the shell), ttyS2 its errors, ttyS3 control.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root TERM=linux
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /tmp
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t securityfs securityfs /sys/kernel/security 2>/dev/null
ip link set lo up
# Without this the kernel runs modprobe for every unknown protocol or cipher: slow, and never the same twice.
echo > /proc/sys/kernel/modprobe
for port in 1 2 3; do
	stty -F /dev/ttyS$port raw -echo clocal 115200
done
exec 3<>/dev/ttyS3
if [ -f /lab/modules ]; then
	while read -r module; do
		insmod "$module" || echo "modfail $module" >&3
	done </lab/modules
fi
cd /root

# A change of settings with TCSADRAIN returns after all output has left the port.
drain() {
	stty -F /dev/ttyS1 raw
	stty -F /dev/ttyS2 raw
}

mode=$(cat /lab/mode)
case $mode in
run)
	echo "ready $(uname -r)" >&3
	sh /lab/command </dev/null >/dev/ttyS1 2>/dev/ttyS2 3>&-
	status=$?
	drain
	echo "exit $status" >&3
	;;
shell)
	[ -f /lab/size ] && stty -F /dev/ttyS1 $(cat /lab/size)
	# Kept open, or what is typed before the shell opens the port would be lost.
	exec 4<>/dev/ttyS1
	stty -F /dev/ttyS1 sane
	echo "ready $(uname -r)" >&3
	# A new session, whose first opened terminal becomes its controlling one: Ctrl-C and job control work.
	setsid sh -c 'exec sh -l </dev/ttyS1 >/dev/ttyS1 2>&1 3>&- 4>&-'
	status=$?
	echo "exit $status" >&3
	;;
session)
	echo "ready $(uname -r)" >&3
	# Each line: a number and a shell script in base64. Commands run one after the other.
	while read -r number script <&3; do
		[ "$number" = stop ] && break
		echo "$script" | base64 -d >/lab/script
		sh /lab/script </dev/null >/dev/ttyS1 2>/dev/ttyS2 3>&-
		status=$?
		drain
		echo "done $number $status" >&3
	done
	echo "exit 0" >&3
	;;
esac
stty -F /dev/ttyS3 raw
# QEMU runs with -no-reboot: a reboot ends it.
reboot -f

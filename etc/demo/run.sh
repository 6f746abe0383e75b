#!/bin/bash
# The demo: h2fpm with the repository's own pool.ini behind a private nginx, on
# https://localhost:$PORT, until Ctrl-C (or TERM). All that the two write is in
# one temporary directory, which goes with them.
#
#     PORT=8443 H2FPM=build/h2fpm etc/demo/run.sh
set -u
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
port=${PORT:-8443}
h2fpm=$(realpath -- "${H2FPM:-$top/build/h2fpm}") || exit 1
conf=${H2FPM_CONF:-$top/pool.ini}
pool=www
dir=
h2fpm_pid=
nginx_pid=
stopping=

say() {
	printf '%s\n' "$*"
}

# Our own words; what the shell itself says of jobs that end is silenced later.
exec {words}>&2

complain() {
	printf 'h2fpm demo: %s\n' "$*" >&"$words"
}

alive() {
	[[ -n $1 ]] && kill -0 "$1" 2>/dev/null
}

# TERM, five seconds, KILL; then reap, so that nothing outlives this script. The
# group goes too: an nginx whose master was killed leaves its workers behind.
stop() {
	local pid=$1 i
	[[ -n $pid ]] || return 0
	kill -TERM "$pid" 2>/dev/null
	for ((i = 0; i < 100; i++)); do
		alive "$pid" || break
		sleep 0.05
	done
	alive "$pid" && complain "process $pid did not end on TERM within 5 s"
	kill -KILL -- "-$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
}

clean_up() {
	trap '' INT TERM HUP QUIT
	stop "$nginx_pid"
	stop "$h2fpm_pid"
	[[ -n $dir ]] && rm -rf -- "$dir"
}

on_signal() {
	stopping=1
	say
	say 'Stopping.'
	exit 0
}

# What a process that should still be running has said last.
last_words() {
	local file=$dir/$1.log
	[[ -s $file ]] && tail -n 5 -- "$file" | sed "s/^/    /" >&"$words"
}

port_taken() {
	complain "port $port is taken; choose another one, as in: PORT=$((port < 65000 ? port + 1000 : 8443)) make run"
	exit 1
}

check_port() {
	if ! [[ $port =~ ^[1-9][0-9]{0,4}$ ]] || ((port > 65535)); then
		complain "PORT must be a number from 1 to 65535, not '$port'"
		exit 1
	fi
	(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && port_taken
	[[ -n $ipv6 ]] && (exec 3<>"/dev/tcp/::1/$port") 2>/dev/null && port_taken
	return 0
}

make_certificate() {
	(umask 077 && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
		-subj /CN=localhost -addext 'subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1' \
		-keyout "$dir/key.pem" -out "$dir/cert.pem") >"$dir/openssl.log" 2>&1 && return
	complain 'openssl could not make a certificate:'
	last_words openssl
	exit 1
}

# Short, since a socket's path may have 107 bytes; open to the pool's user, who
# may not be able to read the checkout.
make_dir() {
	dir=$(mktemp -d /tmp/h2fpm-demo.XXXXXXXX) || exit 1
	chmod 0711 "$dir"
	mkdir "$dir/run" "$dir/nginx-tmp" && cp -r -- "$top/etc/demo/www" "$dir/www" || exit 1
	chmod -R u=rwX,go=rX "$dir/www" "$dir/run" "$dir/nginx-tmp"
}

write_nginx_conf() {
	local user='# not root: no user to change to' listen6=
	((EUID == 0)) && user='user www-data;'
	[[ -n $ipv6 ]] && listen6="listen [::1]:$port ssl http2;"
	sed -e "s|@USER@|$user|" -e "s|@LISTEN6@|$listen6|" -e "s|@PORT@|$port|g" -e "s|@DIR@|$dir|g" \
		-e "s|@SOCKET@|$dir/run/$pool.sock|" "$top/etc/demo/nginx.conf.in" >"$dir/nginx.conf"
}

# In a session of its own, so that Ctrl-C reaches this script alone and the
# order of stopping is ours; with a TERM from the kernel should this script be
# killed outright. $! is the program's own process id: both helpers exec.
start() {
	setpriv --pdeathsig TERM setsid env --default-signal "$@" </dev/null {words}>&- &
}

died() {
	[[ -n $stopping ]] && exit 0
	grep -qs 'Address already in use' "$dir/$1.log" && [[ $1 == nginx ]] && port_taken
	complain "$1 ended (status $2); stopping"
	last_words "$1"
	exit 1
}

check_alive() {
	local status
	alive "$h2fpm_pid" || { wait "$h2fpm_pid" 2>/dev/null; status=$?; died h2fpm $status; }
	alive "$nginx_pid" || { wait "$nginx_pid" 2>/dev/null; status=$?; died nginx $status; }
}

answers() {
	curl -sS -o /dev/null --fail --max-time 2 --noproxy '*' --cacert "$dir/cert.pem" \
		"https://localhost:$port/tile.php?of=1&work=0" 2>"$dir/curl.log"
}

wait_until_it_answers() {
	local i
	for ((i = 0; i < 150; i++)); do
		check_alive
		answers && return
		sleep 0.1
	done
	complain 'no answer from the demo:'
	last_words curl
	last_words nginx
	exit 1
}

ipv6=$(grep -s '^00000000000000000000000000000001 ' /proc/net/if_inet6)
check_port
trap clean_up EXIT
trap on_signal INT TERM HUP QUIT
make_dir
make_certificate
write_nginx_conf

export H2FPM_RUN="$dir/run" H2FPM_ACCESS_LOG="$dir/access.log"
start "$h2fpm" -F -y "$conf"
h2fpm_pid=$!
start nginx -p "$dir" -c "$dir/nginx.conf" -e "$dir/nginx.log" >"$dir/nginx.out" 2>&1
nginx_pid=$!
wait_until_it_answers
exec 2>/dev/null

say
say "  https://localhost:$port"
say
say '  The certificate is self-made: the browser will ask once. Ctrl-C stops everything.'
say "  Access log (until then): $H2FPM_ACCESS_LOG"
say

# Of one that has died while this was said "wait -n" does not know any more:
# hence the look twice a second.
while alive "$h2fpm_pid" && alive "$nginx_pid"; do
	sleep 0.5 &
	wait -n "$h2fpm_pid" "$nginx_pid" $!
done
check_alive

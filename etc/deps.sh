#!/bin/bash
# Installs what is missing for one of: run, test, fuzz, lint, bench (Debian 12).
# As an ordinary user it prints the one command that root has to run, and fails.
set -u
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

run=(gcc libc6-dev make libev-dev libinih-dev libfcgi-dev php8.2-cgi nginx openssl curl)
case ${1-} in
run) wanted=("${run[@]}") ;;
test) wanted=("${run[@]}" clang libcmocka-dev python3 python3-pytest python3-pytest-xdist python3-selenium
	chromium chromium-driver nghttp2-client apache2-utils php8.2-fpm libfcgi-perl
	lighttpd lighttpd-mod-openssl apache2 caddy h2o haproxy) ;;
fuzz) wanted=(clang libclang-rt-dev llvm libc6-dev make libev-dev libinih-dev libfcgi-dev) ;;
bench) wanted=("${run[@]}" python3 nghttp2-client apache2-utils php8.2-fpm dokuwiki haproxy) ;;
lint) wanted=(clang clang-tidy cppcheck shellcheck) ;;
*)
	echo "usage: ${0##*/} run|test|fuzz|lint|bench" >&2
	exit 64
	;;
esac

installed() {
	local name=$1
	# Another package than Debian's may have brought it.
	[[ $name == nginx ]] && command -v nginx >/dev/null && return
	[[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]]
}

if ! command -v dpkg-query >/dev/null; then
	echo "This is not Debian; needed are: ${wanted[*]}" >&2
	exit 0
fi

missing=()
for name in "${wanted[@]}"; do
	installed "$name" || missing+=("$name")
done
((${#missing[@]} == 0)) && exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if ((EUID != 0)); then
	echo "Not everything is here yet. As root, run this, then try again:" >&2
	echo "    apt-get update && ${install[*]}" >&2
	exit 1
fi
echo "Installing ${missing[*]}"

# Five web servers would all want port 80 as soon as they are there, and some
# packages fail to install when they do not get it. The tests start their own.
policy=/usr/sbin/policy-rc.d
if [[ $1 == test && ! -e $policy ]]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 0755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
"${install[@]}" </dev/null || { apt-get update && "${install[@]}" </dev/null; }

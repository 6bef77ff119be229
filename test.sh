#!/usr/bin/env bash
# Runs the tests: all but the long ones, or with --faults those too. Installs what they need where that is missing (as root, on Debian and its kin), or says what to install.
set -euo pipefail
cd "$(dirname "$0")"

run=()
case "$*" in
    "") ;;
    # A thread more than cores: the first test of all sleeps for ten minutes (tests/it/away.rs), beside the others.
    --faults) run=(--include-ignored --test-threads $(($(nproc) + 1)) --skip many_targets --skip in_many_cases) ;;
    *)
        echo "test.sh: unknown argument: $* (it takes --faults or none)" >&2
        exit 2
        ;;
esac

# Servers are often in a directory that only root looks into.
PATH="$PATH:/usr/sbin"

# quietly COMMAND…: runs it so that packages do not start the services they bring; the tests start their own.
quietly() {
    local policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    local result=0
    "$@" || result=$?
    rm -f "$policy"
    return "$result"
}

# install PACKAGE: installs it if it can. Whether it worked, whoever calls this sees.
install() {
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "test.sh: installing $1" >&2
        apt-get update -qq >&2 || true
        DEBIAN_FRONTEND=noninteractive quietly apt-get install -qq -y --no-install-recommends "$1" >&2 || true
    fi
}

# need COMMAND PACKAGE: makes sure that COMMAND can be run.
need() {
    if command -v "$1" >/dev/null; then
        return
    fi
    install "$2"
    if ! command -v "$1" >/dev/null; then
        echo "test.sh: $1 is missing; please install it (on Debian and Ubuntu: apt-get install $2)" >&2
        exit 1
    fi
}

# python_packages FILE: makes sure that the packages of this list are in the tests' own environment, target/tools/venv.
python_packages() {
    local venv=target/tools/venv installed
    installed="$venv/$(echo "$1" | tr / -)"
    if cmp -s "$1" "$installed"; then
        return
    fi
    if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$1" >&2; }; then
        echo "test.sh: the packages of $1 cannot be installed; it needs pip and venv (on Debian and Ubuntu: apt-get install python3-venv)" >&2
        exit 1
    fi
    cp "$1" "$installed"
}

# node_packages DIRECTORY: makes sure that the packages of its package-lock.json are in target/tools/node.
node_packages() {
    local node=target/tools/node
    if cmp -s "$1/package-lock.json" "$node/installed"; then
        return
    fi
    mkdir -p "$node"
    cp "$1/package.json" "$1/package-lock.json" "$node"
    if ! npm ci --prefix "$node" --no-audit --no-fund --silent >&2; then
        echo "test.sh: the packages of $1 cannot be installed by npm" >&2
        exit 1
    fi
    cp "$1/package-lock.json" "$node/installed"
}

if ! command -v cargo >/dev/null; then
    echo "test.sh: cargo is missing; please install Rust 1.95 or newer from https://rustup.rs" >&2
    exit 1
fi
need cc gcc
need redis-server redis-server
need nginx nginx
# A library to preload; the command comes with it.
need faketime faketime
# They run the samples in docs/pass-format.md.
need python3 python3
need node nodejs
need openssl openssl
need chromium chromium
# Proxies before shops, as docs/integrations sets them up.
need haproxy haproxy
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    install python3-venv
fi
python_packages tests/proxies/requirements.txt
# It holds every answer to the OpenAPI description.
python_packages tests/description/requirements.txt
# Shops on real frameworks, in tests/shops.
need npm npm
need php php-cli
need go golang-go
python_packages tests/shops/python/requirements.txt
node_packages tests/shops/node

# These keep the whole machine busy, with real frameworks and proxies; tests of outages measure time. So they run by themselves.
busy=(shops:: proxies::)
alone=()
for tests in "${busy[@]}"; do
    alone+=(--skip "$tests")
done

# Not --all-targets: that would build the examples as tests, and tests run them as programs.
result=0
cargo test --locked --no-fail-fast -- "${run[@]}" "${alone[@]}" || result=$?
# The long run of the shops is for a person to start: cargo test --test it -- --ignored shops::
cargo test --locked --no-fail-fast --test it -- "${busy[@]}" || result=$?
if [ "${#run[@]}" -gt 0 ]; then
    # By itself: it keeps the whole machine busy, and would be held up by others that do.
    cargo test --locked --test it -- --include-ignored --test-threads 1 many_targets || result=$?
fi
exit "$result"

#!/usr/bin/env bash
# Prints the name of a Debian image that the runtime image can start from, and makes sure that it exists on this machine.
#
#   deploy/base-image.sh            # debian:bookworm-slim if it is here or can be pulled, else a local one made by debootstrap
#
# The release of Debian is that of this machine, because the binaries are built here and need its C library. Where no registry
# can be reached, debootstrap makes the image from the mirror in the machine's own apt configuration. An image that exists is kept.
set -euo pipefail

say() { printf 'base-image: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# Release of this machine; on other systems the one that the project is tested on.
release=$(. /etc/os-release && [ "${ID:-}" = debian ] && printf %s "${VERSION_CODENAME:-}" || true)
release=${release:-bookworm}
public="debian:$release-slim"
local_image="dp-pvi-base:$release"

for image in "$local_image" "$public"; do
    if docker image inspect "$image" >/dev/null 2>&1; then
        printf '%s\n' "$image"
        exit 0
    fi
done

if timeout 60 docker pull --quiet "$public" >/dev/null 2>&1; then
    printf '%s\n' "$public"
    exit 0
fi
say "$public cannot be pulled: making $local_image with debootstrap"

[ "$(id -u)" -eq 0 ] || fail "debootstrap needs root; run this script once as root, or load an image and name it with --build-arg BASE=IMAGE"
if ! command -v debootstrap >/dev/null; then
    command -v apt-get >/dev/null || fail "debootstrap is not installed and there is no apt-get to install it with"
    say "installing debootstrap"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends debootstrap; } >&2 </dev/null
fi

# First archive of that release in apt's configuration, in either of its two formats; security archives have another layout.
mirror=$(
    {
        cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 's/^URIs:[[:space:]]*//p' | tr ' ' '\n'
        cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | sed -n 's/^deb[[:space:]]\+\(\[[^]]*\][[:space:]]*\)\?\([^[:space:]]*\).*/\2/p'
    } | grep -E '/debian/?$' | head -n 1 || true
)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say "debootstrap $release from ${mirror:-its default archive}"
debootstrap --variant=minbase "$release" "$work/root" ${mirror:+"$mirror"} >"$work/log" 2>&1 </dev/null || {
    tail -n 20 "$work/log" >&2
    fail "debootstrap failed"
}
# Documentation and package lists have no use at run time.
tar -C "$work/root" --numeric-owner \
    --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' --exclude='./var/log/*' \
    --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' -c . |
    docker import --message "debootstrap $release" - "$local_image" >/dev/null
say "made $local_image"
printf '%s\n' "$local_image"

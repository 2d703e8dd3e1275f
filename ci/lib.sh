# Shared by ci/test and every ci/steps/*; sourced, never run.
#
# A step's exit code is its verdict: 0 passed, 77 skipped (as automake has it), anything else failed.
# Skipping is `skip NAME WHY`; `KVSTRATA_REQUIRE=NAME,…` (or `all`) turns it into a failure.
# shellcheck shell=bash

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

# All builds lie under one directory, one folder a compiler configuration, so that no step discards the
# build of another one.
base="${CARGO_TARGET_DIR:-$root/target}"
mkdir -p "$base"
base="$(cd "$base" && pwd)"
export CARGO_TARGET_DIR="$base"

# Link-time optimisation makes no test faster, and costs time for each program.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

# The toolchain that the sanitizers, the fuzzers and Miri need.
nightly="${KVSTRATA_NIGHTLY:-nightly}"

# On CI a lock file that does not fit is an error; at a desk cargo may bring it up to date.
locked=()
if [[ -n "${CI:-}" ]]; then
    locked=(--locked)
    # CI builds once: incremental data would never be used.
    export CARGO_INCREMENTAL=0
fi

# Cargo tools that the steps install for themselves.
tools="$base/ci-tools"
export PATH="$tools/bin:$PATH"

required() { # NAME: whether KVSTRATA_REQUIRE lists it
    [[ ",${KVSTRATA_REQUIRE:-}," == *",$1,"* || ",${KVSTRATA_REQUIRE:-}," == *",all,"* ]]
}

note_skip() { # NAME WHY: prints that a part is skipped, and goes on; fails if the part is required
    if required "$1"; then
        echo "FAIL $1: required by KVSTRATA_REQUIRE, but $2" >&2
        exit 1
    fi
    echo "SKIP $1: $2"
}

skip() { # NAME WHY: skips the whole step
    note_skip "$1" "$2"
    exit 77
}

need_nightly() { # NAME: the step NAME cannot run without the nightly toolchain
    cargo "+$nightly" --version >/dev/null 2>&1 ||
        skip "$1" "no $nightly toolchain (rustup toolchain install $nightly --profile minimal)"
}

# The host's target triple. Sanitizer builds name it; otherwise cargo would instrument build scripts too.
host_triple() { rustc "$@" -vV | sed -n 's/^host: //p'; }

need_tool() { # BINARY CRATE VERSION NAME: installs a cargo tool once, under target/ci-tools
    command -v "$1" >/dev/null && return
    echo "installing $2 $3 (once, into $tools)"
    # A debug build: these tools run for a second, and an optimised build takes minutes.
    CARGO_TARGET_DIR="$tools/build" CARGO_PROFILE_DEV_DEBUG=0 \
        cargo install --quiet --debug --locked --root "$tools" --version "$3" "$2" ||
        skip "$4" "cargo install $2 failed (offline?)"
}

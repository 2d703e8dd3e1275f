# A build under a sanitizer; sourced after lib.sh by steps/tsan and steps/asan.
#
# The standard library is the one that rustup ships, which is not instrumented: `-Zbuild-std` would need
# the rust-src component. AddressSanitizer loses little by that. ThreadSanitizer does not see the atomics
# behind a *contended* std lock, channel or barrier, and would report the data that they protect; a
# stress test therefore starts its threads with a spinning atomic and ends them with join(), which TSan knows.
# shellcheck shell=bash

sanitizer_setup() { # NAME SANITIZER CANARY: exports the flags once the sanitizer has caught CANARY
    need_nightly "$1"
    target="$(host_triple "+$nightly")"
    export CARGO_TARGET_DIR="$base/ci-$1"
    # Exported: a library that a test loads (the double of libcuda) finds the sanitizer's runtime in the
    # program.
    export RUSTFLAGS="-Zsanitizer=$2 -Cunsafe-allow-abi-mismatch=sanitizer -Clink-arg=-Wl,--export-dynamic"
    mkdir -p "$CARGO_TARGET_DIR"

    # A sanitizer that reports nothing proves nothing: first it must find a known bug.
    local canary="$CARGO_TARGET_DIR/canary"
    # shellcheck disable=SC2086 # the flags are words
    rustc "+$nightly" --edition 2024 $RUSTFLAGS --target "$target" -o "$canary" - <<<"$3" 2>"$canary.log" ||
        skip "$1" "$nightly cannot build for it ($(grep -m1 error "$canary.log"))"
    "$canary" >"$canary.log" 2>&1 || true
    grep -q 'SUMMARY: .*Sanitizer' "$canary.log" ||
        skip "$1" "it finds nothing in a program that has a bug ($(head -1 "$canary.log"))"
}

sanitizer_test() { # ARGUMENTS…: cargo test under the sanitizer
    CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true \
        cargo "+$nightly" test "${locked[@]}" --release --target "$target" "$@"
}

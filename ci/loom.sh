# How the models are built; sourced after lib.sh by steps/loom and steps/mutations, which share a build.
# shellcheck shell=bash

loom_cargo() { # ARGUMENTS…: cargo, with loom's atomics in place of core's
    # Link-time optimisation gains a model nothing, and each of them would pay for it.
    CARGO_TARGET_DIR="$base/ci-loom" RUSTFLAGS="--cfg loom" \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 \
        cargo "$1" "${locked[@]}" --release "${@:2}"
}

# A model is a test file of the core, or, as `core:MODULE` or `ffi:MODULE`, the tests of one module.
loom_model() { # MODEL ARGUMENTS…
    case "$1" in
        core:* | ffi:*) loom_cargo test --package "kvstrata-${1%%:*}" --lib "${1#*:}" "${@:2}" ;;
        *) loom_cargo test --package kvstrata-core --test "$1" "${@:2}" ;;
    esac
}

# How the models are built and run; sourced after lib.sh by steps/loom and steps/mutations, which share a build.
# shellcheck shell=bash

# Executables of a build: lines `core:lib PATH`, `core:loom_life PATH`, ….
models="$base/ci-loom/models"

loom_build() { # builds all models once
    local json="$base/ci-loom/build.json" packages=() tests=() file
    packages=(--package kvstrata-core --package kvstrata-ffi --lib)
    for file in core/tests/loom_*.rs; do
        file="${file##*/}"
        tests+=(--test "${file%.rs}")
    done
    mkdir -p "$base/ci-loom"
    # Link-time optimisation gains a model nothing, and each of them would pay for it.
    CARGO_TARGET_DIR="$base/ci-loom" RUSTFLAGS="--cfg loom" \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 \
        cargo test "${locked[@]}" --release "${packages[@]}" "${tests[@]}" --no-run \
        --message-format json-render-diagnostics >"$json"
    sed -nE 's/.*"manifest_path":"[^"]*\/([a-z]+)\/Cargo.toml".*"target":\{"kind":\["([a-z]+)"\].*"name":"([^"]+)","src_path".*"executable":"([^"]+)".*/\1 \2 \3 \4/p' "$json" |
        while read -r crate kind name path; do
            [[ $kind == lib ]] && name=lib
            echo "$crate:$name $path"
        done >"$models"
}

# A model is a test file of the core, or, as `core:MODULE` or `ffi:MODULE`, the tests of one module.
loom_model() { # MODEL ARGUMENTS…: runs it, as cargo would
    local crate=core name="$1" filter=()
    case "$1" in
        core:* | ffi:*) crate="${1%%:*}" name=lib filter=("${1#*:}") ;;
    esac
    local path
    path="$(sed -n "s#^$crate:$name ##p" "$models")"
    [[ -n $path ]] || { echo "no model '$1' was built" >&2; return 3; }
    (cd "$crate" && "$path" "${filter[@]}" "${@:2}")
}

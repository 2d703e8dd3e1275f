# How the models are built and run; sourced after lib.sh by steps/loom and steps/mutations, which share a
# build.
# shellcheck shell=bash

# Executables of a build: lines `core:lib PATH`, `core:loom_life PATH`, ….
models="$base/ci-loom/models"

# Tests that have passed: lines `PATH TEST`. Good while no model is newer.
passed="$base/ci-loom/passed"

# Loom is built as one unit: its small functions are most of a model's time, and inlined they take 0.7 of it.
loom_build() { # builds all models once
    local json="$base/ci-loom/build.json" packages=() tests=() file
    packages=(--package kvstrata-core --package kvstrata-ffi --lib)
    for file in core/tests/loom_*.rs; do
        file="${file##*/}"
        tests+=(--test "${file%.rs}")
    done
    mkdir -p "$base/ci-loom"
    CARGO_TARGET_DIR="$base/ci-loom" RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG=0 \
        cargo test "${locked[@]}" --release "${packages[@]}" "${tests[@]}" --no-run \
        --config 'profile.release.package.loom.codegen-units=1' \
        --message-format json-render-diagnostics >"$json"
    sed -nE 's/.*"manifest_path":"[^"]*\/([a-z]+)\/Cargo.toml".*"target":\{"kind":\["([a-z]+)"\].*"name":"([^"]+)","src_path".*"executable":"([^"]+)".*/\1 \2 \3 \4/p' "$json" |
        while read -r crate kind name path; do
            [[ $kind == lib ]] && name=lib
            echo "$crate:$name $path"
        done >"$models"
}

loom_crate() { # MODEL
    [[ $1 == *:* ]] && echo "${1%%:*}" || echo core
}

loom_path() { # MODEL: its executable, if it was built
    local name="$1"
    [[ $1 != *:* ]] || name=lib
    sed -n "s#^$(loom_crate "$1"):$name ##p" "$models"
}

# A model is a test file of the core, or, as `core:MODULE` or `ffi:MODULE`, the tests of one module.
loom_model() { # MODEL ARGUMENTS…: runs it, as cargo would
    local filter=() path
    [[ $1 != *:* ]] || filter=("${1#*:}")
    path="$(loom_path "$1")"
    [[ -n $path ]] || { echo "no model '$1' was built" >&2; return 3; }
    (cd "$(loom_crate "$1")" && "$path" "${filter[@]}" "${@:2}")
}

loom_has_passed() { # MODEL TEST: whether this build of it has passed without a mutation
    local path
    path="$(loom_path "$1")"
    [[ $passed -nt $path ]] && grep -qxF "$path $2" "$passed"
}

loom_note_passed() { # MODEL: reads the model's output
    sed -n "s#^test \(.*\) \.\.\. ok\$#$(loom_path "$1") \1#p" >>"$passed"
}

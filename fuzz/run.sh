#!/usr/bin/env bash
# Builds the fuzz targets with coverage counters and runs each for a while: fuzz/run.sh [SECONDS [TARGET…]].
# Needs no nightly toolchain and no cargo-fuzz, only a C++ compiler for libFuzzer. What was found interesting stays in
# fuzz/corpus/TARGET, an input that fails in fuzz/artifacts/TARGET.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
shift || true
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=($(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.toml | tail -n +2))

# What `cargo fuzz` sets too, less the sanitizer, which safe code has little use for.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-pc-table"
coverage+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-trace-compares"
export RUSTFLAGS="--cfg fuzzing -Cdebug-assertions -Ccodegen-units=4 $coverage"
# A target of its own keeps the counters out of build scripts and macros.
triple=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --target "$triple"

for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    echo "== $target for $seconds s"
    "target/$triple/release/$target" "corpus/$target" -artifact_prefix="artifacts/$target/" \
        -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 2>&1 |
        grep -E '^(stat::|SUMMARY|ERROR|==[0-9]|Test unit|thread |.*panicked)|DONE' || true
    if compgen -G "artifacts/$target/*" >/dev/null; then
        echo "error: $target fails on $(ls artifacts/"$target"/*)" >&2
        exit 1
    fi
done

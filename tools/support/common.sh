# Shell functions that tools/check and tools/demo share; sourced, not run.

# Debian packages, by what needs them; docs/dependencies.md says what each is for.
packages_build=(cmake ninja-build g++ libopenblas-dev libhwy-dev nlohmann-json3-dev libxxhash-dev
                libboost-program-options-dev libspdlog-dev)
packages_mpi=(libopenmpi-dev openmpi-bin)
packages_test=(libgtest-dev libboost-context-dev)
packages_style=(clang-format)

say() { printf '%s\n' "== $*"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Installs those of the named Debian packages that are missing.
install_missing() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is no Debian machine: packages are not looked for (docs/dependencies.md lists them)"
    return
  fi
  local package missing=() as_root=()
  for package in "$@"; do is_installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null ||
      fail "missing packages; run as root: apt-get install -y ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get -qq update || fail "apt-get update failed; see its message above"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get install failed; see its message above"
}

# Arguments for cmake that speed up building again.
compiler_launcher() {
  command -v ccache >/dev/null || return 0
  echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache
}

# Lets Open MPI run as root, with more ranks than cores, in a container without ptrace.
allow_mpi_anywhere() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
  export OMPI_MCA_btl_vader_single_copy_mechanism=none
}

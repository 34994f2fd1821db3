#!/usr/bin/env bash
# Builds CAF's core for the thread sanitizer: build/tsan-caf/lib/libcaf_core.so. Debian's library is
# not instrumented, so the sanitizer sees none of its mailboxes' hand-overs and reports races where
# there are none. The source is that of the installed package. Needs the network once.
set -euo pipefail
cd "$(dirname "$0")/.."
built=build/tsan-caf
[ ! -e $built/lib/libcaf_core.so ] || exit 0
echo "== tsan: build CAF"
rm -rf $built
mkdir -p $built/sources.list.d $built/lists/partial $built/cache/archives/partial
cd $built

# The machine's own package sources, asked for source packages, in lists of our own: nothing of the
# system is changed, and root is not needed.
eval "$(apt-config shell list Dir::Etc::sourcelist/f parts Dir::Etc::sourceparts/d)"
for file in "$list" "$parts"/*.list "$parts"/*.sources; do
  [ -e "$file" ] || continue
  sed -E '/^deb-src/d; s/^deb([[:space:]])/deb-src\1/; s/^Types:.*/Types: deb-src/I' "$file" \
    >"sources.list.d/$(basename "$file")"
done
apt=(apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$PWD/sources.list.d"
     -o Dir::State::Lists="$PWD/lists" -o Dir::Cache="$PWD/cache" -o APT::Sandbox::User=root)
# One source that does not answer is no trouble as long as another one has the package.
"${apt[@]}" update || true

# The original archive is enough: without Debian's patches headers and soname are the same.
version=$(dpkg-query -W -f '${source:Version}' libcaf-dev)
read -r uri archive _ hash < <("${apt[@]}" source --print-uris "actor-framework=$version" |
                               grep -F '.orig.tar.') ||
  { echo "no package source has actor-framework $version: see the lines above" >&2; exit 1; }
/usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file \
  "${uri//\'/}" "$PWD/$archive" "$hash" >/dev/null
mkdir source
tar xf "$archive" -C source --strip-components=1

{
  cmake -S source -B . -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_UNITY_BUILD=ON \
    -DCMAKE_UNITY_BUILD_BATCH_SIZE=35 \
    -DCMAKE_CXX_FLAGS="-fsanitize=thread -O1 -g1" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
    -DCAF_NO_{IO,OPENSSL,OPENCL,TOOLS,EXAMPLES,UNIT_TESTS,PYTHON}=ON
  ninja
} >build.log 2>&1 || { tail -n 60 build.log; exit 1; }
rm -rf lists cache

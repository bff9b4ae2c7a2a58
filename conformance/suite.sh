#!/usr/bin/env bash
# Runs the official MCP conformance suite against this workspace's programs.
#
#   conformance/suite.sh            both roles, both revisions
#   conformance/suite.sh server     one role only
#   conformance/suite.sh client
#
# What is expected, and what is left out, stands in tally.mjs. Exits with 1
# unless all of it passes. Needs bash, cargo, npm and a network for the first
# run; after that the pinned suite and runtime come from the cache folder.
#
#   CONFORMANCE_CACHE=DIR    where these are installed (conformance/.cache)
#   CONFORMANCE_RESULTS=DIR  where the results go (a new temporary folder)
#   CONFORMANCE_AUTH=1       also runs the auth/* scenarios: shown, not counted
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
cache=${CONFORMANCE_CACHE:-$here/.cache}
roles=${1:-server client}
revisions="2026-07-28 2025-11-25"

say() { printf '\n== %s\n' "$*"; }
die() {
  printf 'suite.sh: %s\n' "$*" >&2
  exit 1
}

for role in $roles; do
  case $role in
    server | client) ;;
    *) die "unknown role '$role': say server, client, or nothing for both" ;;
  esac
done

# The suite wants Node 22, which few machines have. The registry's own packages
# of it hold the program itself, for the systems named in package.json, so no
# install script has to run. Elsewhere the machine's own node must do.
say "suite and runtime in $cache"
if ! cmp -s "$here/package-lock.json" "$cache/installed.json"; then
  mkdir -p "$cache"
  cp "$here/package.json" "$here/package-lock.json" "$cache/"
  (cd "$cache" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  cp "$cache/package-lock.json" "$cache/installed.json"
fi
node=node
for bundled in "$cache"/node_modules/node-*/bin/node; do
  if [ -x "$bundled" ]; then node=$bundled; fi
done
"$node" -e 'process.exit(parseInt(process.versions.node) < 22 ? 1 : 0)' ||
  die "the suite needs Node 22 or newer, and $node is $("$node" --version)"
suite=$cache/node_modules/@modelcontextprotocol/conformance/dist/index.js
"$node" -p '"conformance " + require(process.argv[1]).version + ", node " + process.version' \
  "$cache/node_modules/@modelcontextprotocol/conformance/package.json"

say "building the programs to be judged"
cargo build --manifest-path "$root/Cargo.toml" -p relist-conformance --bins
programs=$(cargo metadata --manifest-path "$root/Cargo.toml" --format-version 1 --no-deps |
  "$node" -p 'JSON.parse(require("fs").readFileSync(0)).target_directory')/debug

results=${CONFORMANCE_RESULTS:-$(mktemp -d "${TMPDIR:-/tmp}/conformance.XXXXXX")}
mkdir -p "$results"
for revision in $revisions; do
  "$node" "$suite" list --requirements "$revision" >"$results/required-$revision.txt"
done

server_pid=
stop_server() {
  if [ -n "$server_pid" ]; then
    kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
    server_pid=
  fi
}
trap stop_server EXIT

# The program picks a free port and says where, so there is none to lose to
# somebody else between the choice and the bind.
start_server() {
  local url_file=$results/server-url.txt
  "$programs/relist-conformance-server" --listen 127.0.0.1:0 \
    >"$url_file" 2>"$results/server-log.txt" &
  server_pid=$!
  for _ in $(seq 100); do
    url=$(head -n 1 "$url_file")
    if [ -n "$url" ] && "$node" -e 'fetch(process.argv[1]).then(() => process.exit(0), () => process.exit(1))' "$url"; then
      return
    fi
    kill -0 "$server_pid" 2>/dev/null || break
    sleep 0.1
  done
  cat "$results/server-log.txt" >&2
  die "the server does not answer"
}

run_server() {
  start_server
  for revision in $revisions; do
    say "server, $revision, at $url"
    # The exit code counts failures; tally.mjs counts what must have passed.
    "$node" "$suite" server --url "$url" --requirements "$revision" \
      -o "$results/server-$revision" >"$results/server-$revision.log" 2>&1 || true
  done
  kill -0 "$server_pid" 2>/dev/null || die "the server ended during the run, see $results/server-log.txt"
  stop_server
}

# One scenario after the other: the suite would start all of a revision at
# once, and one of them measures how punctually a client comes back.
run_client() {
  for revision in $revisions; do
    say "client, $revision"
    for scenario in $("$node" "$here/tally.mjs" scenarios "$results" client "$revision"); do
      "$node" "$suite" client --command "$programs/relist-conformance-client" \
        --scenario "$scenario" --spec-version "$revision" \
        -o "$results/client-$revision" >>"$results/client-$revision.log" 2>&1 || true
    done
  done
}

for role in $roles; do
  "run_$role"
done

say "results in $results"
# shellcheck disable=SC2086
"$node" "$here/tally.mjs" table "$results" $roles

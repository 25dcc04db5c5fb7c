# shellcheck shell=bash
# Sourced. Finds and ends processes by an environment variable, which all that they start inherits.

# marked NAME=VALUE: prints their pids, one per line.
marked() { grep -lzxF -- "$1" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3; }

# run_marked NAME=VALUE COMMAND...: returns its exit code. Runs in the background, because a trap waits for a
# foreground command. Bash makes background commands ignore Ctrl-C, which tests of that signal must not inherit.
run_marked() {
  env --default-signal=INT,QUIT -- "$@" &
  wait "$!"
}

# end_marked NAME=VALUE: asks them to end, and kills them after 5 seconds.
end_marked() {
  local pids tries
  for ((tries = 0; tries < 100; tries++)); do
    mapfile -t pids < <(marked "$1")
    ((${#pids[@]})) || return 0
    ((tries)) || kill -TERM "${pids[@]}" 2>/dev/null
    ((tries)) || kill -CONT "${pids[@]}" 2>/dev/null
    ((tries < 50)) || kill -KILL "${pids[@]}" 2>/dev/null
    sleep 0.1
  done
}

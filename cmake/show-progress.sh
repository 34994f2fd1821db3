# For scripts that build; to be sourced. `show_progress` takes ninja's output with this status. For a
# file or a pipe: a line every ten seconds, also while nothing ends, and whatever the compiler says. A
# terminal sees how far the build is on one line that changes.
export NINJA_STATUS="[%f/%t, %e s] "

show_progress() {
  local line last="" next=0 code
  while true; do
    code=0
    IFS= read -r -t 10 line || code=$?
    if [ $code -gt 128 ]; then
      line="${last:-[nothing yet]} (still, after $SECONDS s)"
    elif [ $code -gt 0 ]; then
      break  # The end.
    else
      case "$line" in
        \[*) last="$line" ;;
        *) echo "$line"; continue ;;
      esac
    fi
    [ $SECONDS -ge $next ] || continue
    echo "$line"
    next=$((SECONDS + 10))
  done
  [ "${last:-$line}" = "$line" ] || echo "$last"
}
